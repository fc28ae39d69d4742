import { expect, test } from "vitest";
import { cliInProcess } from "../../../test/support/run-cli.ts";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { someDeadLetters } from "../../../test/support/dead-letters.ts";
import { pgDatabase } from "../../storage/index.ts";
import { discardDeadLetters } from "./dead-letter-actions.ts";
import { createDeadLetterAdmin } from "./dead-letter-admin.ts";

const place = { type: "order.placed", topic: "events.order.placed" };
const by = { actor: "ann", reason: "test orders" };

async function setup() {
  const { pool, url } = await temporaryDatabase({ migrated: true });
  await someDeadLetters(pool, place, [{ consumer: "billing", letters: 4, error: "'late'" }]);
  const admin = createDeadLetterAdmin(pgDatabase(pool), "sagabox");
  const other = await pool.connect();
  await other.query("begin");
  await other.query("select 1 from sagabox.dead_letter order by id limit 1 for update");
  const letGo = async (): Promise<void> => {
    await other.query("rollback");
    other.release();
  };
  return { admin, url, letGo };
}

test("E5: dead letters locked by another operator are not reported as discarded, and the next run discards them", async () => {
  const { admin, letGo } = await setup();
  expect(await discardDeadLetters(admin, {}, by)).toEqual({ discarded: 3, left: 1, finished: false });
  await letGo();
  expect(await discardDeadLetters(admin, {}, by)).toEqual({ discarded: 1, left: 0, finished: true });
});

test("E5: the command prints how many are left, and exits as incomplete", async () => {
  const { url, letGo } = await setup();
  const args = ["dlq", "discard", "--all", "--reason", "test orders", "--actor", "ann", "--yes"];
  const { code, stdout } = await cliInProcess(args, { DATABASE_URL: url });
  await letGo();
  expect([code, stdout]).toEqual([
    4,
    expect.stringMatching(/^3 dead letters were discarded\. 1 are still open/),
  ]);
  expect(await cliInProcess(args, { DATABASE_URL: url })).toMatchObject({
    code: 0,
    stdout: "1 dead letters were discarded.\n",
  });
});

test("E5: dead letters outside the filter do not count as left", async () => {
  const { admin, letGo } = await setup();
  expect(await discardDeadLetters(admin, { consumer: "mail" }, by)).toEqual({
    discarded: 0,
    left: 0,
    finished: true,
  });
  await letGo();
});
