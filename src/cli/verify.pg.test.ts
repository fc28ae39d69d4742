import { EventEmitter } from "node:events";
import { expect, test } from "vitest";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { someDeadLetters } from "../../test/support/dead-letters.ts";
import { rolesHarness } from "../../test/support/roles-harness.ts";
import { pgDatabase } from "../storage/index.ts";
import { OutboxWriter } from "../outbox/index.ts";
import { silentObserver } from "../telemetry/index.ts";
import { anOutgoing } from "../../test/support/relays.ts";

test("G13: verify as an operator says that all is well, then finds what was lost, and exits with 3", async () => {
  const { pool, login } = await rolesHarness();
  const env = { DATABASE_URL: await login("operator") };
  expect((await cliInProcess(["verify"], env)).stdout).toMatch(/^Kept: there are no messages to count;/);
  const writer = new OutboxWriter("sagabox", silentObserver);
  const messages = ["m-1", "m-\u001b[31m2"].map((id) => anOutgoing({ message: { id, key: id } }));
  await writer.write(pgDatabase(pool), messages);
  const { rows } = await pool.query<{ today: string }>(
    "select max(written_on)::text as today from sagabox.message",
  );
  expect((await cliInProcess(["verify"], env)).stdout).toContain(
    `written since ${rows[0]?.today} are accounted`,
  );
  const well = await cliInProcess(["verify", "--lanes", "--since", "1d"], env);
  expect(well).toMatchObject({ code: 0, stderr: "" });
  expect(well.stdout).toContain("Kept: all 2 message(s)");
  expect(well.stdout).toMatch(/lane +written +sent/);
  await pool.query("delete from sagabox.outbox where message_id <> 'm-1'");
  const broken = await cliInProcess(["verify"], env);
  expect(broken.code).toBe(3);
  expect(broken.stdout).toContain("BROKEN: 1 problem(s)");
  expect(broken.stdout).toContain("message_lost in lane");
  expect(broken.stdout).not.toContain("\u001b");
  const report = JSON.parse((await cliInProcess(["verify", "--json"], env)).stdout) as object;
  expect(report).toMatchObject({
    ok: false,
    verdict: "broken",
    finished: true,
    total: { written: 2, waiting: 1, lost: 1 },
    skipped: 0,
    findings: [{ kind: "message_lost", count: 1, ids: ["m-\u001b[31m2"] }],
  });
});

test("G13: verify does not say that all is well when it could not look, and exits with 4", async () => {
  const { pool, login } = await rolesHarness();
  const env = { DATABASE_URL: await login("operator") };
  await new OutboxWriter("sagabox", silentObserver).write(pgDatabase(pool), [anOutgoing()]);
  const client = await pool.connect();
  await client.query("begin; lock table sagabox.receipt in access exclusive mode");
  const text = await cliInProcess(["verify", "--since", "0d"], env);
  await client.query("rollback");
  client.release();
  expect(text.code).toBe(4);
  expect(text.stdout).toContain("INCOMPLETE: some data could not be checked.");
  expect(text.stdout).toMatch(/^\d window\(s\) or table\(s\) were too busy/m);
  expect(text.stdout).not.toContain("Kept");
});

test.each([[["--watch", "60"]], [[]]])(
  "G13: Ctrl-C ends verify %j between two windows, and it says so",
  async (more) => {
    const { pool, login } = await rolesHarness();
    await new OutboxWriter("sagabox", silentObserver).write(pgDatabase(pool), [anOutgoing()]);
    const signals = new EventEmitter();
    signals.on("newListener", (name) => {
      if (name === "SIGINT") setImmediate(() => signals.emit("SIGINT"));
    });
    const env = { DATABASE_URL: await login("operator") };
    const { code, stdout } = await cliInProcess(["verify", "--json", ...more], env, { signals });
    expect(code).toBe(4);
    expect(JSON.parse(stdout)).toMatchObject({
      ok: false,
      verdict: "incomplete",
      finished: false,
      total: { written: 0 },
    });
  },
);

test("verify says that its table is about sending, and counts the dead letters of consumers beside it", async () => {
  const { pool, login } = await rolesHarness();
  const env = { DATABASE_URL: await login("operator") };
  await someDeadLetters(pool, { type: "order.placed", topic: "orders" }, [
    { consumer: "billing", letters: 5, error: "'broken'" },
  ]);
  await pool.query(`update sagabox.dead_letter set closed_at = now(), closed_as = 'discarded'
                     where id in (select id from sagabox.dead_letter limit 2)`);
  const { stdout } = await cliInProcess(["verify"], env);
  expect(stdout).toMatch(/^messages by result of sending +count$/m);
  expect(stdout).toContain("Dead letters of consumers: 3 open, 2 discarded. Their messages were sent");
  expect(JSON.parse((await cliInProcess(["verify", "--json"], env)).stdout)).toMatchObject({
    consumerDeadLetters: { open: 3, discarded: 2 },
    total: { dead: 0, discarded: 0 },
  });
});

test("verify refuses what it does not understand, and has an example in its help", async () => {
  expect(await cliInProcess(["verify", "--since", "soon"], {})).toMatchObject({ code: 2 });
  expect(await cliInProcess(["verify", "now"], {})).toMatchObject({ code: 2 });
  expect((await cliInProcess(["verify", "--help"], {})).stdout).toContain("sagabox verify --since 2d");
});
