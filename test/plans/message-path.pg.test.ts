import { expect, test } from "vitest";
import { listStatements } from "../../scripts/sql/statements-file.ts";
import { temporaryDatabase } from "../support/database.ts";
import { messagePath } from "./message-path.ts";
import { OFF_PATH, ROOMS_OFF_PATH } from "./off-path.ts";
import { findGreedyStatements } from "./stale-statistics.ts";

test("every statement is on the message path or listed as not on it", async () => {
  const onPath = new Set(messagePath().map(({ statement }) => statement.name));
  const isKnown = (name: string): boolean =>
    onPath.has(name) || name in OFF_PATH || ROOMS_OFF_PATH.includes(name.split(".")[1] ?? "");
  const names = (await listStatements()).map(({ name }) => name);
  const all = [...new Set(names)].filter((name) => name.startsWith("sagabox."));
  expect(all.filter((name) => !isKnown(name))).toEqual([]);
  expect(Object.keys(OFF_PATH).filter((name) => !all.includes(name) || onPath.has(name))).toEqual([]);
});

test("statements planned for empty tables read only the rows they name", { timeout: 120_000 }, async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  expect(await findGreedyStatements(pool, [1_000, 10_000])).toEqual([]);
});

test("the check sees a statement that reads everything", { timeout: 60_000 }, async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  await pool.query("drop index sagabox.queue_stream");
  const greedy = await findGreedyStatements(pool, [1_000]);
  expect(greedy.map((line) => line.split(" ")[0])).toContain("sagabox.queue.parked");
});
