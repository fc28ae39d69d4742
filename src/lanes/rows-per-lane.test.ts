import { expect, test } from "vitest";
import { rowsPerLane } from "./rows-per-lane.ts";

test.each([
  { lanes: 256, limit: 500, rows: 16, because: "a full batch comes from an eighth of all lanes" },
  { lanes: 128, limit: 500, rows: 32, because: "and so it does where relays share them" },
  { lanes: 256, limit: 100, rows: 16, because: "each lane of a batch costs something when it settles" },
  { lanes: 256, limit: 2_000, rows: 63, because: "large batches are found in as many lanes" },
  { lanes: 4, limit: 500, rows: 250, because: "few lanes are read deeply, never by one read alone" },
  { lanes: 256, limit: 20, rows: 10, because: "nor are small batches" },
  { lanes: 0, limit: 1, rows: 1, because: "there is always something to ask for" },
])("$rows of each of $lanes lanes for $limit: $because", ({ lanes, limit, rows }) => {
  expect(rowsPerLane(lanes, limit)).toBe(rows);
});
