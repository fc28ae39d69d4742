import { expect, test } from "vitest";
import { HistoryDays } from "./reader.ts";
import type { ReadRow } from "./read.ts";

const NOON = Date.parse("2026-03-01T12:00:00Z");
const rows = (...days: string[]) => days.map((writtenOn) => ({ row: { writtenOn } }) as ReadRow);

test("messages are looked for in the day that it is", () => {
  expect(new HistoryDays().guessRange(NOON)).toEqual(["2026-03-01", "2026-03-01"]);
});

test("while rows are older, messages are looked for as far back as they", () => {
  const days = new HistoryDays();
  days.update(rows("2026-02-20", "2026-02-10", "2026-02-15"));
  expect(days.guessRange(NOON)).toEqual(["2026-02-10", "2026-03-01"]);
  days.update(rows("2026-03-01"));
  expect(days.guessRange(NOON)).toEqual(["2026-03-01", "2026-03-01"]);
});

test("where the clock of the server is ahead, messages are looked for on the days that it writes", () => {
  const days = new HistoryDays();
  days.update(rows("2026-03-02", "2026-03-03"));
  expect(days.guessRange(NOON)).toEqual(["2026-03-01", "2026-03-03"]);
});
