import { expect, test } from "vitest";
import { HistoryDays } from "./lane-row.ts";
import type { ReadRow } from "./lane-row.ts";

const NOON = Date.parse("2026-03-01T12:00:00Z");
const rows = (...days: string[]) => days.map((writtenOn) => ({ row: { writtenOn } }) as ReadRow);

test("messages are searched in the current day", () => {
  expect(new HistoryDays().guessRange(NOON)).toEqual(["2026-03-01", "2026-03-01"]);
});

test("with older rows, messages are searched back to the day of the oldest row", () => {
  const days = new HistoryDays();
  days.update(rows("2026-02-20", "2026-02-10", "2026-02-15"));
  expect(days.guessRange(NOON)).toEqual(["2026-02-10", "2026-03-01"]);
  days.update(rows("2026-03-01"));
  expect(days.guessRange(NOON)).toEqual(["2026-03-01", "2026-03-01"]);
});

test("if the server clock is ahead, messages are searched on the days that the server writes", () => {
  const days = new HistoryDays();
  days.update(rows("2026-03-02", "2026-03-03"));
  expect(days.guessRange(NOON)).toEqual(["2026-03-01", "2026-03-03"]);
});
