import { expect, test } from "vitest";
import { Days } from "./days.ts";
import type { ReadRow } from "./read.ts";

const NOON = Date.parse("2026-03-01T12:00:00Z");
const rows = (...days: string[]) => days.map((writtenOn) => ({ row: { writtenOn } }) as ReadRow);

test("messages are looked for about now, a day to each side", () => {
  expect(new Days().expected(NOON)).toEqual(["2026-02-28", "2026-03-02"]);
});

test("while rows are older, messages are looked for as far back as they", () => {
  const days = new Days();
  days.met(rows("2026-02-20", "2026-02-10", "2026-02-15"));
  expect(days.expected(NOON)).toEqual(["2026-02-10", "2026-03-02"]);
  days.met(rows("2026-03-01"));
  expect(days.expected(NOON)).toEqual(["2026-02-28", "2026-03-02"]);
});
