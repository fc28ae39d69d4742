import { expect, test, vi } from "vitest";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { rolesHarness } from "../../test/support/roles-harness.ts";

vi.setConfig({ testTimeout: 60_000 });

async function setup() {
  const { pool, url, login } = await rolesHarness();
  await pool.query(`insert into sagabox.consumer_inbox
      (consumer_name, event_id, source_topic, event_type, consumed_at, processing_duration_ms)
    select consumer, 'm-' || age, 'orders', 'order.placed', now() - age * interval '1 minute', 7
      from unnest(array['mail', 'stock']) as consumer, unnest(array[1, 90, 2000, 100000]) as age
     where consumer = 'mail' or age < 100`);
  const viewer = await login("viewer");
  const cli = (...args: string[]) => cliInProcess(["inbox", ...args], { DATABASE_URL: viewer, USER: "ann" });
  const owner = (...args: string[]) => cliInProcess(["inbox", ...args], { DATABASE_URL: url, USER: "ann" });
  return { pool, cli, owner };
}

test("D9: inbox stats, list and show tell what each consumer has handled, to whoever may only look", async () => {
  const { cli } = await setup();
  const { code, stdout } = await cli("stats");
  expect(code).toBe(0);
  expect(stdout).toMatch(/^mail +4 +\S+ +1 +2$/m);
  expect(stdout).toMatch(/^stock +2 +\S+ +1 +2$/m);
  expect(stdout).toContain("consumer_inbox_duplicates_total");
  expect(JSON.parse((await cli("stats", "--consumer", "stock", "--json")).stdout)).toMatchObject({
    consumers: [{ consumer: "stock", total: 2, lastHour: 1, lastDay: 2 }],
  });
  const found = async (...args: string[]) =>
    (
      JSON.parse((await cli("list", ...args, "--json")).stdout) as { handled: { messageId: string }[] }
    ).handled.map(({ messageId }) => messageId);
  expect(await found("--consumer", "mail")).toEqual(["m-1"]);
  expect(await found("--consumer", "mail", "--since", "2d")).toEqual(["m-1", "m-90", "m-2000"]);
  expect(await found("--type", "order.paid")).toEqual([]);
  expect((await cli("list", "--consumer", "nope")).stdout).toBe(
    "No message was handled in that time. There is no consumer nope. Known: mail, stock.\n",
  );
  expect((await cli("list")).stdout).toMatch(/^\S+ +mail +m-1 +order\.placed +orders +7 +yes$/m);
  expect(JSON.parse((await cli("show", "m-90", "--json")).stdout)).toMatchObject({
    messageId: "m-90",
    handled: [{ consumer: "mail" }, { consumer: "stock" }],
  });
  expect(await cli("show", "m-2")).toMatchObject({
    code: 1,
    stdout: expect.stringContaining("sagabox explain m-2"),
  });
  expect(await cli("list", "--since", "soon")).toMatchObject({ code: 2 });
});

test("G6: inbox cleanup forgets what is old, and keeps what the archive could bring again", async () => {
  const { cli, owner, pool } = await setup();
  const due = async () =>
    (JSON.parse((await owner("cleanup", "--keep", "30d", "--dry-run", "--json")).stdout) as { due: number })
      .due;
  expect(await due()).toBe(1);
  await pool.query(`create table sagabox.message_20200101 partition of sagabox.message
                      for values from ('2020-01-01') to ('2020-01-02')`);
  expect(await due()).toBe(0);
  await pool.query("drop table sagabox.message_20200101");
  expect(await owner("cleanup", "--keep", "30d")).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("1 row(s) of the inbox are deleted. Nothing was done: add --yes"),
  });
  expect(await owner("cleanup", "--keep", "1d", "--yes")).toMatchObject({ code: 2 });
  expect(await owner("cleanup", "--keep", "30d", "--yes")).toMatchObject({
    code: 0,
    stdout:
      "1 row(s) forgotten. Rows of the last 32 days are kept: the time in which a message could be delivered again, plus two days.\n",
  });
  const { rows } = await pool.query(
    "select actor, after::text from sagabox.audit_log where action = 'inbox.cleanup'",
  );
  expect(rows).toEqual([{ actor: "ann", after: expect.stringContaining('"forgotten":1') }]);
  expect(await cli("cleanup", "--keep", "30d", "--yes")).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("needs the owner role"),
  });
});
