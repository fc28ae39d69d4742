import { createBus, event, permanent } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { cliInProcess, startCli } from "../../test/support/run-cli.ts";
import { consumersAtWork, someDeadLetters } from "../../test/support/dead-letters.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { until } from "../../test/support/relays.ts";

vi.setConfig({ testTimeout: 180_000 });

const Placed = event("order.placed", {
  schema: z.object({ n: z.number(), cause: z.number() }),
  key: ({ n }) => `k${n}`,
});
const place = { type: "order.placed", topic: "events.order.placed" };

async function setup({ running = true, broken = () => false as boolean | string } = {}) {
  const { pool, url } = await temporaryDatabase({ max: 30, migrated: true });
  const bus = createBus({ service: "shop", database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  const seen: number[] = [];
  const world = {
    broken: broken as (data: { n: number; cause: number }) => boolean | string,
    /** Handlers wait while about this many messages have been handled. */
    maxHandled: Number.POSITIVE_INFINITY,
  };
  const retry = { maxAttempts: 2, firstDelay: 20 };
  for (const consumer of ["billing", "mail"]) {
    bus.on(Placed, { consumer, retry }, async ({ data }) => {
      await until(() => seen.length < world.maxHandled, 60_000);
      const why = world.broken(data);
      if (why === true) throw permanent("no price for article 1");
      if (typeof why === "string") throw new Error(why);
      seen.push(data.n);
    });
  }
  if (running) {
    await bus.run();
    await consumersAtWork(pool, "billing", "mail");
  }
  const env = { DATABASE_URL: url, USER: "ann" };
  const dlq = (...args: string[]) => cliInProcess(["dlq", ...args], env);
  const json = async <T>(...args: string[]): Promise<T> =>
    JSON.parse((await dlq(...args, "--json")).stdout) as T;
  const rows = async (sql: string) => (await pool.query<Record<string, unknown>>(sql)).rows;
  return { pool, bus, seen, world, dlq, json, rows, env };
}

test("dlq: letters are grouped by their cause, listed, searched and shown", async () => {
  const { pool, dlq, json } = await setup({ running: false });
  expect(await dlq("groups", "--check")).toMatchObject({
    code: 0,
    stdout: "No open dead letters.\n",
  });
  await someDeadLetters(pool, place, [
    { consumer: "billing", letters: 5, error: "'no price for article ' || n" },
    {
      consumer: "mail",
      letters: 2,
      error: `'mailbox "' || n || e'@x" full \\x1b[31m'`,
      errorType: "TypeError",
    },
  ]);
  const found = await json<{ open: number; groups: Record<string, unknown>[] }>("groups");
  expect(found).toMatchObject({
    open: 7,
    count: 2,
    groups: [
      {
        consumer: "billing",
        open: 5,
        reason: "exhausted",
        label: "billing · order.placed · Error: no price for article #",
        replayed: 0,
        discarded: 0,
      },
      { consumer: "mail", open: 2, errorType: "TypeError" },
    ],
  });
  const told = await dlq("list", "--check");
  expect(told.code).toBe(3);
  expect(told.stdout).toMatch(/^[0-9a-f]{12} {2}5 +billing +order\.placed +exhausted +Error: no price/m);
  expect(told.stdout).toContain("7 open dead letters in 2 groups.");
  expect(told.stdout).not.toContain("\u001b");
  const group = String(found.groups[0]?.["fingerprint"]);
  const page = await json<{ deadLetters: { id: string; messageId: string }[] }>(
    "list",
    "--group",
    group,
    "--limit",
    "2",
  );
  expect(page.deadLetters.map(({ messageId }) => messageId)).toEqual(["m0-5", "m0-4"]);
  for (const [option, value, count] of [
    ["--consumer", "mail", 2],
    ["--text", "MAILBOX", 2],
    ["--message", "m0-3", 1],
    ["--key", "k1", 2],
    ["--correlation-id", "c5", 1],
    ["--died", "rejected", 0],
    ["--topic", place.topic, 7],
    ["--since", "1h", 7],
    ["--until", "1h", 0],
  ] as const) {
    expect((await json<{ deadLetters: unknown[] }>("list", option, value)).deadLetters, option).toHaveLength(
      count,
    );
  }
  const shown = await dlq("show", page.deadLetters[0]?.id ?? "");
  expect(shown.stdout).toContain(`group ${group}: billing · order.placed`);
  expect(shown.stdout).toContain("exhausted after 3 attempts");
  expect(shown.stdout).toContain("trace     0af7651916cd43dd8448eb211c80319c");
  expect(shown.stdout).toContain('data      {"n" : 5, "cause" : 0}');
});

test("dlq: a staged replay says what it would do, does it once confirmed, and is audited letter by letter", async () => {
  const { pool, dlq, json, seen, rows } = await setup();
  await someDeadLetters(pool, place, [{ consumer: "billing", letters: 12, error: "'late by ' || n" }]);
  const plan = await dlq("replay", "--all", "--dry-run");
  expect(plan).toMatchObject({ code: 0 });
  expect(plan.stdout).toContain("Dry run: nothing was replayed.");
  expect(seen).toEqual([]);
  const report = await json("replay", "--all", "--rate", "1000", "--reason", "fixed", "--yes");
  expect(report).toMatchObject({
    verdict: "done",
    replayed: 12,
    handled: 12,
    diedAgain: 0,
    waiting: 0,
    left: 0,
  });
  expect(seen.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 12 }, (_, i) => i + 1));
  expect(
    await rows(
      `select actor, action, reason, count(*)::int as lines from sagabox.audit_log group by 1, 2, 3 order by 2`,
    ),
  ).toEqual([
    { actor: "ann", action: "dead_letter.replay", reason: "fixed", lines: 12 },
    { actor: "ann", action: "dead_letter.replay_finished", reason: "fixed", lines: 1 },
    { actor: "ann", action: "dead_letter.staged_replay", reason: "fixed", lines: 1 },
  ]);
});

test("dlq: a failure that comes back stops its group after the canary, with 4, while the others go on", async () => {
  const { pool, dlq, world, seen } = await setup();
  world.broken = ({ cause }) => cause === 1;
  await someDeadLetters(pool, place, [
    { consumer: "billing", letters: 20, error: "'late by ' || n" },
    {
      consumer: "billing",
      letters: 30,
      error: "'no price for article ' || n",
      reason: "rejected",
      errorType: "Permanent",
    },
  ]);
  const told = await dlq("replay", "--all", "--rate", "500", "--canary", "2", "--reason", "fixed", "--yes");
  expect(told.code).toBe(4);
  expect(told.stdout).toMatch(/stopped +canary +30 +2 +0 +2 +0 +28 /);
  expect(told.stdout).toMatch(/done +ramp +20 +20 +20 +0 +0 +0 /);
  expect(told.stdout).toContain("stopped, the same failure came back: Permanent: no price for article 1");
  expect(seen).toHaveLength(20);
});

test("dlq: a failure that is still being retried is recognised at its first attempt", async () => {
  const { pool, json, world } = await setup();
  world.broken = () => "late by 99";
  await someDeadLetters(pool, place, [{ consumer: "billing", letters: 5, error: "'late by ' || n" }]);
  const report = await json("replay", "--consumer", "billing", "--canary", "1", "--reason", "try", "--yes");
  expect(report).toMatchObject({ verdict: "stopped", replayed: 1, left: 4 });
});

test("dlq: letters of one key go in order, and none overtakes one that died again", async () => {
  const { pool, json, world, seen } = await setup();
  await someDeadLetters(pool, place, [
    { consumer: "billing", letters: 6, error: "'late'", key: "'one'" },
    { consumer: "billing", letters: 6, error: "'never'", key: "'one'" },
  ]);
  // Both causes share a key and were written in turn, so the groups have to take turns as well.
  const report = await json("replay", "--all", "--rate", "1000", "--reason", "x", "--yes");
  expect(report).toMatchObject({ verdict: "done", replayed: 12, handled: 12, left: 0 });
  expect(seen).toEqual([1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]);
  world.broken = ({ n }) => (n === 2 ? "another failure" : false);
  await someDeadLetters(pool, place, [
    { consumer: "mail", letters: 4, error: "'late'", key: "'two'", prefix: "x" },
  ]);
  const stopped = await json("replay", "--all", "--canary", "1", "--rate", "1000", "--reason", "x", "--yes");
  expect(stopped).toMatchObject({ replayed: 2, handled: 1, diedAgain: 1, left: 2 });
});

test("dlq: nobody to handle it stops a replay before it begins, and one that ends does not hang it", async () => {
  const { pool, dlq, rows } = await setup({ running: false });
  await someDeadLetters(pool, place, [{ consumer: "billing", letters: 3, error: "'late'" }]);
  const told = await dlq("replay", "--all", "--reason", "x", "--yes");
  expect(told.code).toBe(4);
  expect(told.stdout).toContain('consumer "billing" has never read from this database');
  await pool.query("insert into sagabox.consumer_group (name) values ('billing')");
  await pool.query(
    "insert into sagabox.relay_lane (lane, scope) select id * 256, id from sagabox.consumer_group",
  );
  expect((await dlq("replay", "--all", "--dry-run")).stdout).toContain('no worker runs consumer "billing"');
  await someDeadLetters(pool, place, [{ consumer: "billing", letters: 1, error: "'one'", prefix: "one" }]);
  const [one] = await rows("select max(id)::text as id from sagabox.dead_letter");
  expect(await dlq("replay", String(one?.["id"]), "--reason", "x")).toMatchObject({
    code: 0,
    stderr: 'It is waiting: no worker runs consumer "billing"; start it.\n',
  });
  await pool.query("delete from sagabox.queue");
  await pool.query(
    `insert into sagabox.member (id, scope, worker, lease_until)
     select 'm', id, 'gone', clock_timestamp() + interval '1 hour' from sagabox.consumer_group`,
  );
  const hung = await dlq("replay", "--all", "--wait", "300ms", "--reason", "x", "--yes");
  expect(hung.code).toBe(4);
  expect(hung.stdout).toContain("unknown yet, 3 replayed messages have had no outcome for");
  expect(await rows("select count(*)::int as n from sagabox.queue")).toEqual([{ n: 3 }]);
});

test("dlq: one letter is replayed or discarded by its id, many are discarded by a filter, each with a reason", async () => {
  const { pool, dlq, json, rows, seen } = await setup();
  await someDeadLetters(pool, place, [{ consumer: "billing", letters: 5, error: "'late'" }]);
  const plan = await dlq("replay", "1", "--dry-run");
  expect(plan).toMatchObject({ code: 0, stderr: "" });
  expect(plan.stdout).toMatch(
    /^Dead letter 1 \(order\.placed, message .*would be sent back to billing\.\nDry run/,
  );
  expect(await json("replay", "1", "--dry-run")).toMatchObject({ dryRun: true, consumer: "billing" });
  expect(await rows("select 1 from sagabox.dead_letter where closed_at is not null")).toEqual([]);
  expect(await dlq("replay", "1")).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("--reason") as string,
  });
  expect((await dlq("replay", "1", "--reason", "fixed")).stdout).toContain("sent back to billing");
  await expect.poll(() => seen).toEqual([1]);
  expect(await dlq("replay", "1", "--reason", "fixed")).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("[DEAD_LETTER_CLOSED]") as string,
  });
  expect(await dlq("discard", "2", "--reason", "x")).toMatchObject({ code: 2 });
  expect((await dlq("discard", "2", "--reason", "x", "--yes")).stdout).toContain(
    "Dead letter 2 (message m0-2) was discarded.",
  );
  const planned = await dlq("discard", "--all", "--dry-run", "--yes");
  expect(planned).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("3 dead letters would be closed permanently.") as string,
  });
  expect(await json("discard", "--key", "k3", "--reason", "x", "--yes")).toEqual({
    discarded: 1,
    left: 0,
    finished: true,
  });
  expect(await json("discard", "--all", "--reason", "x", "--yes")).toEqual({
    discarded: 2,
    left: 0,
    finished: true,
  });
  expect(
    await rows(
      "select action, outcome, count(*)::int as n from sagabox.audit_log group by 1, 2 order by 1, 2",
    ),
  ).toEqual([
    { action: "dead_letter.discard", outcome: "done", n: 4 },
    { action: "dead_letter.replay", outcome: "done", n: 1 },
    { action: "dead_letter.replay", outcome: "refused", n: 1 },
  ]);
});

test("dlq: what makes no sense gets one line and 2; help has an example", async () => {
  const { dlq } = await setup({ running: false });
  for (const args of [
    ["replay"],
    ["discard"],
    ["show"],
    ["list", "--since", "soon"],
    ["groups", "--group", "x"],
    ["bogus"],
  ]) {
    expect(await dlq(...args), args.join(" ")).toMatchObject({ code: 2, stdout: "" });
  }
  expect((await cliInProcess(["help", "dlq"], {})).stdout).toContain("Examples:");
});

test("dlq: a replay that was killed, or ended with Ctrl-C, is gone on with by the same command: all once", async () => {
  const { pool, seen, world, dlq, rows, env } = await setup();
  await someDeadLetters(pool, place, [{ consumer: "billing", letters: 400, error: "'late by ' || n" }]);
  const args = ["dlq", "replay", "--all", "--rate", "100", "--reason", "fixed", "--yes"];
  const left = async (): Promise<number> =>
    (await rows("select 1 from sagabox.dead_letter where closed_at is null")).length;
  // The ramp goes on only when its letters were handled, so a replay cannot finish before the signal reaches it.
  const replayUntil = async (handled: number) => {
    world.maxHandled = handled + 10;
    const replay = startCli(args, { env });
    await until(() => seen.length > handled, 60_000);
    return replay;
  };
  const killed = await replayUntil(20);
  killed.child.kill("SIGKILL");
  await killed.ended;
  world.maxHandled = Number.POSITIVE_INFINITY;
  await until(async () => seen.length === 400 - (await left()), 60_000);
  const ended = await replayUntil(seen.length + 20);
  ended.child.kill("SIGINT");
  expect(await ended.ended).toMatchObject({
    code: 4,
    stdout: expect.stringContaining("interrupted") as string,
  });
  world.maxHandled = Number.POSITIVE_INFINITY;
  const rest = await left();
  expect(rest).toBeGreaterThan(100);
  const last = await dlq("replay", "--all", "--rate", "2000", "--reason", "fixed", "--yes");
  expect(last).toMatchObject({ code: 0, stdout: expect.stringContaining(`${rest} replayed in`) as string });
  await until(() => seen.length >= 400, 60_000);
  expect(seen.toSorted((one, other) => one - other)).toEqual(Array.from({ length: 400 }, (_, n) => n + 1));
  expect(
    await rows(
      "select count(distinct target_id)::int as n from sagabox.audit_log where action = 'dead_letter.replay'",
    ),
  ).toEqual([{ n: 400 }]);
});
