import { EventEmitter } from "node:events";
import { expect, test, vi } from "vitest";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { anOutgoing, type OutboxRow } from "../../test/support/relays.ts";
import { rolesHarness } from "../../test/support/roles-harness.ts";
import { OutboxWriter } from "../outbox/index.ts";
import { pgDatabase } from "../storage/index.ts";

vi.setConfig({ testTimeout: 60_000 });

async function setup() {
  const house = await rolesHarness();
  const [viewer, operator] = [await house.login("viewer"), await house.login("operator")];
  const cli = (url: string, ...args: string[]) => cliInProcess(args, { DATABASE_URL: url, USER: "ann" });
  const writer = new OutboxWriter("sagabox", house.observer);
  const database = pgDatabase(house.pool);
  const write = (...rows: OutboxRow[]) => writer.write(database, rows.map(anOutgoing));
  const query = async <R>(sql: string) => (await house.pool.query(sql)).rows as R[];
  return { ...house, viewer, operator, cli, write, query };
}

const ids = (stdout: string) =>
  (JSON.parse(stdout) as { messages: { messageId: string }[] }).messages.map(({ messageId }) => messageId);

test("outbox list, show and stats: what waits, why and behind whom; no key and no error for who may only look", async () => {
  const { viewer, operator, cli, write, query } = await setup();
  await write({ message: { id: "first", key: "k-1", type: "order.placed", topic: "orders" } });
  await write({ message: { id: "second", key: "k-1", type: "order.placed", topic: "orders" } });
  await write({ message: { id: "other", key: "k-2", type: "order.paid", topic: "payments" } });
  await write({ message: { id: "tomorrow", key: "k-3" }, delayMs: 3_600_000 });
  await query(`update sagabox.outbox set attempts = 1, due_at = now() + interval '1 minute',
                      last_error = 'broker \u001b[31mdown' where message_id = 'first'`);

  const all = await cli(viewer, "outbox", "list");
  expect(all).toMatchObject({ code: 0, stderr: "" });
  expect(all.stdout).toMatch(/^first +orders +order\.placed +– +failed +1\/10 +\S+ +\S+ +–$/m);
  expect(all.stdout).not.toMatch(/k-1|broker/);
  expect(ids((await cli(viewer, "outbox", "list", "--json")).stdout)).toEqual(["first", "second", "other"]);

  const more = (...args: string[]) => cli(operator, "outbox", "list", ...args);
  const open = await more();
  expect(open.stdout).toMatch(/^second +orders +order\.placed +k-1 +due, behind first +0\/10/m);
  expect(open.stdout).toMatch(/^first .* broker \\u001b\[31mdown$/m);
  for (const [args, found] of [
    [["--state", "failed"], ["first"]],
    [["--state", "due", "--topic", "orders"], ["second"]],
    [["--type", "order.paid"], ["other"]],
    [
      ["--key", "k-1"],
      ["first", "second"],
    ],
    [["--min-attempts", "2"], []],
    [["--older-than", "1h"], []],
    [["--state", "scheduled"], ["tomorrow"]],
    [["--state", "held"], []],
  ] as const) {
    expect(ids((await more(...args, "--json")).stdout), args.join(" ")).toEqual(found);
  }
  const page = await more("--limit", "1");
  const [, after = ""] = /^More: add --after (\d+)$/m.exec(page.stdout) ?? [];
  expect(ids((await more("--limit", "1", "--after", after, "--json")).stdout)).toEqual(["second"]);

  expect(await cli(viewer, "outbox", "list", "--key", "k-1")).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("needs the operator role"),
  });
  expect(await cli(viewer, "outbox", "list", "--state", "faild")).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('Did you mean "failed"?'),
  });
  expect(await cli(viewer, "outbox", "stats", "--state", "due")).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("does not accept --state"),
  });

  const stats = await cli(viewer, "outbox", "stats");
  expect(stats.stdout).toMatch(/^orders +order\.placed +2 +1 +0 +0 +1 +\d s$/m);
  expect(JSON.parse((await cli(viewer, "outbox", "stats", "--json")).stdout)).toMatchObject({
    exact: true,
    topics: [
      { topic: "orders", waiting: 2, failed: 1 },
      { topic: "payments", waiting: 1 },
      { waiting: 0, scheduled: 1 },
    ],
  });
  const shown = await cli(operator, "outbox", "show", "first");
  expect(shown.stdout).toMatch(/^1 of 10 attempts, due at \S+, last error: broker/m);
  expect(await cli(operator, "outbox", "show", "nobody")).toMatchObject({ code: 1 });
});

test("G7: outbox retry-now has a failed message tried at once, and writes down who wanted it", async () => {
  const { viewer, operator, cli, write, query } = await setup();
  await write({ message: { id: "stuck" } }, { message: { id: "fine" } });
  await query(
    `update sagabox.outbox set attempts = 1, due_at = now() + interval '1 hour' where message_id = 'stuck'`,
  );
  const retry = (url: string, id: string) =>
    cli(url, "outbox", "retry-now", id, "--reason", "the broker is back", "--json");
  expect(await retry(viewer, "stuck")).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("operator role"),
  });
  const told = await retry(operator, "stuck");
  expect(told).toMatchObject({ code: 0, stderr: "" });
  expect(JSON.parse(told.stdout)).toMatchObject({ messageId: "stuck", attempts: 1 });
  expect(
    await query("select attempts, due_at <= now() as due from sagabox.outbox where message_id = 'stuck'"),
  ).toEqual([{ attempts: 1, due: true }]);
  for (const id of ["stuck", "fine", "nobody"]) {
    expect(await retry(operator, id)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("sagabox explain"),
    });
  }
  expect(
    await query(`select target_id as id, actor, reason, outcome from sagabox.audit_log
                  where action = 'outbox.retry_now' and outcome = 'done'`),
  ).toEqual([{ id: "stuck", actor: "ann", reason: "the broker is back", outcome: "done" }]);
});

test("G6: outbox archive drops what is older than --keep, only when told so, and writes it down", async () => {
  const { url, viewer, cli, query } = await setup();
  await query(`create table sagabox.message_20200101 partition of sagabox.message
                 for values from ('2020-01-01') to ('2020-01-02')`);
  const archive = (...args: string[]) => cli(url, "outbox", "archive", "--keep", "30d", ...args);
  const planned = await archive("--dry-run");
  expect(planned.stdout).toContain("would drop message_20200101");
  expect(await archive()).toMatchObject({ code: 2, stderr: expect.stringContaining("add --yes") });
  expect(await cli(url, "outbox", "archive", "--yes")).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("--keep"),
  });
  const done = await archive("--yes", "--json");
  expect(done.code).toBe(0);
  expect(JSON.parse(done.stdout)).toMatchObject({ dropped: ["message_20200101"], kept: [], finished: true });
  expect(await query("select 1 from pg_class where relname = 'message_20200101'")).toEqual([]);
  expect(
    await query("select actor, reason, outcome from sagabox.audit_log where action = 'outbox.archive'"),
  ).toEqual([{ actor: "ann", reason: "older than 30d", outcome: "done" }]);
  expect(await cli(viewer, "outbox", "archive", "--keep", "30d", "--yes")).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/It needs the owner role .*sagabox roles sql/),
  });
});

test("A15: republish sends a window again under its ids, stops on Ctrl-C and goes on where it was", async () => {
  const { operator, cli, write, query } = await setup();
  const wanted = Array.from({ length: 20 }, (_, n) => `m-${String(n).padStart(2, "0")}`);
  for (const [n, id] of wanted.entries())
    await write({ message: { id, key: `k-${Math.floor(n / 4)}`, topic: "orders" } });
  await write({ message: { id: "other", topic: "else" } });
  await query("delete from sagabox.outbox");
  const window = [
    "--from",
    new Date(Date.now() - 3_600_000).toISOString(),
    "--to",
    new Date(Date.now() + 60_000).toISOString(),
  ];
  const args = ["republish", ...window, "--topic", "orders"];
  const why = ["--reason", "broker lost a disk"];
  expect((await cli(operator, ...args, "--dry-run")).stdout.trim()).toMatch(
    /^20 message\(s\) of the window would go out again\..* Nothing was done\.$/,
  );
  expect((await cli(operator, ...args, "--yes")).stderr).toContain("--reason");
  expect(await cli(operator, ...args, ...why)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("--yes"),
  });
  expect(await query("select 1 from sagabox.outbox")).toEqual([]);

  const signals = new EventEmitter();
  const stopped = await cliInProcess(
    [...args, ...why, "--yes", "--rate", "4"],
    { DATABASE_URL: operator, USER: "ann" },
    { signals, terminal: { out: false, draw: () => void signals.emit("SIGINT") } },
  );
  expect(stopped.code).toBe(4);
  const [, after = ""] =
    /^Stopped: 4 go out again\. Continue with --after (\S+)$/m.exec(stopped.stdout) ?? [];
  const rest = await cli(operator, ...args, ...why, "--yes", "--after", after, "--json");
  expect(JSON.parse(rest.stdout)).toMatchObject({ count: 16, finished: true });
  const sent = await query<{ ids: string[] }>(
    "select array_agg(message_id::text order by seq) as ids from sagabox.outbox group by stream order by min(message_id)",
  );
  expect(sent.flatMap(({ ids }) => ids)).toEqual(wanted);
  const lines = await query<{ actor: string }>(
    "select actor from sagabox.audit_log where action = 'outbox.republish' and reason = 'broker lost a disk'",
  );
  expect(lines.length).toBeGreaterThanOrEqual(2);
});
