import { expect, test } from "vitest";
import { temporaryDatabase } from "../support/database.ts";
import { findGreedyStatements } from "../plans/stale-statistics.ts";

const ROWS = process.env["TEST_PROOF"] === "full" ? 1_000_000 : 100_000;

test(`statements planned for empty tables read only the rows they name among ${ROWS}`, async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  expect(await findGreedyStatements(pool, [ROWS])).toEqual([]);
});
