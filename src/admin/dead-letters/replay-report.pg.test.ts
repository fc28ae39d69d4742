import { createBus, event, permanent } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { consumersAtWork, someDeadLetters } from "../../../test/support/dead-letters.ts";
import { pgDatabase } from "../../storage/index.ts";
import { createDeadLetterAdmin } from "./dead-letter-admin.ts";
import { listDeadLetterGroups } from "./list-dead-letters.ts";
import { replayInStages } from "./staged-replay.ts";

vi.setConfig({ testTimeout: 60_000 });

const place = { type: "order.placed", topic: "events.order.placed" };
const by = { actor: "ann", reason: "fixed" };
const Placed = event("order.placed", { schema: z.object({ n: z.number() }), key: ({ n }) => `k${n}` });

async function setup() {
  const { pool } = await temporaryDatabase({ max: 30, migrated: true });
  const world = { broken: false };
  const run = async () => {
    const bus = createBus({ service: "shop", database: pool, log: false });
    onTestFinished(async () => void (await bus.stop()));
    bus.on(Placed, { consumer: "billing" }, () => {
      if (world.broken) throw permanent("no card of Berta");
    });
    await bus.run();
    await consumersAtWork(pool, "billing");
  };
  return { pool, world, run, admin: createDeadLetterAdmin(pgDatabase(pool), "sagabox") };
}

test("dead letters of more than 1,000 causes are all replayed or counted as left", async () => {
  const { pool, admin } = await setup();
  await someDeadLetters(pool, place, [{ consumer: "billing", letters: 1_005, error: "'late'" }]);
  await pool.query("update sagabox.dead_letter set fingerprint = left(md5(id::text), 12)");
  const report = await replayInStages(admin, {}, { ...by, rate: 10_000 });
  expect(report).toMatchObject({ verdict: "not running", replayed: 0, left: 1_005 });
  expect(report.groups).toHaveLength(1_005);
});

test("dead letters locked by another operator are left, and the replay is incomplete", async () => {
  const { pool, run, admin } = await setup();
  await run();
  await someDeadLetters(pool, place, [{ consumer: "billing", letters: 3, error: "'late'" }]);
  await listDeadLetterGroups(admin);
  const other = await pool.connect();
  await other.query("begin");
  await other.query("select 1 from sagabox.dead_letter where id = 2 for update");
  const report = await replayInStages(admin, {}, by);
  await other.query("rollback");
  other.release();
  expect(report).toMatchObject({ verdict: "incomplete", handled: 2, left: 1 });
  expect(report.groups[0]?.why).toContain("are locked by another operator");
  expect(await replayInStages(admin, {}, by)).toMatchObject({ verdict: "done", handled: 1, left: 0 });
});

test("the audit log of a replay contains neither keys nor error texts, which may be personal", async () => {
  const { pool, world, run, admin } = await setup();
  world.broken = true;
  await run();
  await someDeadLetters(pool, place, [
    {
      consumer: "billing",
      letters: 1,
      error: "'no card of Berta'",
      errorType: "Permanent",
      reason: "rejected",
    },
  ]);
  const report = await replayInStages(admin, { key: "k1", text: "BERTA", consumer: "billing" }, by);
  expect(report.verdict).toBe("stopped");
  expect(report.groups[0]?.why).toContain("Berta");
  const { rows } = await pool.query<{ action: string; line: string }>(
    "select action, log::text as line from sagabox.audit_log as log order by timestamp",
  );
  expect(rows.map(({ action }) => action)).toEqual([
    "dead_letter.staged_replay",
    "dead_letter.replay",
    "dead_letter.replay_stopped",
  ]);
  const lines = rows.map(({ line }) => line).join("\n");
  expect(lines).toContain("the same failure came back");
  expect(lines).toContain("billing");
  expect(lines).not.toMatch(/berta|k1/i);
});
