import { command, createBus, event } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { consumersAtWork, someDeadLetters } from "../../test/support/dead-letters.ts";
import { rolesHarness } from "../../test/support/roles-harness.ts";

vi.setConfig({ testTimeout: 60_000 });

const Placed = event("order.placed", { schema: z.object({ n: z.number() }), key: ({ n }) => `k${n}` });
const Ship = command("order.ship", { schema: z.object({ n: z.number() }), key: ({ n }) => `k${n}` });
const why = ["--reason", "renamed", "--yes"];

async function setup() {
  const house = await rolesHarness();
  const operator = await house.login("operator", "viewer");
  const cli = (...args: string[]) => cliInProcess(args, { DATABASE_URL: operator, USER: "ann" });
  const handled: string[] = [];
  const worker = async (...consumers: string[]) => {
    const bus = createBus({ service: "shop", database: house.url, log: false });
    onTestFinished(async () => void (await bus.stop()));
    for (const consumer of consumers) {
      bus.on(Placed, { consumer }, ({ data }) => void handled.push(`${consumer} ${data.n}`));
      bus.on(
        Ship,
        { consumer: `${consumer}-ships` },
        ({ data }) => void handled.push(`${consumer} ships ${data.n}`),
      );
    }
    await bus.run();
    await consumersAtWork(house.pool, ...consumers.flatMap((name) => [name, `${name}-ships`]));
    const publish = (n: number) =>
      bus.transaction(async (tx) => {
        await tx.publish(Placed, { n });
        await tx.publish(Ship, { n });
      });
    return { bus, publish };
  };
  const waiting = () =>
    house.count(
      "queue",
      "lane / 256 in (select id from sagabox.consumer_group where name in ('old', 'old-ships'))",
    );
  const sent = () => expect.poll(() => house.count("outbox")).toBe(0);
  return { ...house, cli, worker, handled, waiting, sent };
}

test("a consumer that is gone is retired with what waits for it, and comes back as a new one that knows what it did", async () => {
  const { cli, worker, handled, waiting, sent, pool, count } = await setup();
  const first = await worker("old");
  await first.publish(1);
  await expect.poll(() => handled.toSorted()).toEqual(["old 1", "old ships 1"]);
  const refused = await cli("inbox", "retire", "old", ...why);
  expect(refused).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/"old" is alive in a worker \(.+\).*\[CONSUMER_RUNNING\]/),
  });
  await first.bus.stop();

  const second = await worker("new");
  for (const n of [2, 3]) await second.publish(n);
  await sent();
  await expect.poll(waiting).toBe(4);
  expect((await cli("doctor")).stdout).toContain(
    'sagabox inbox retire old --actor "$(whoami)" --reason retired',
  );
  const text = "1 subscription(s) (events.order.placed) of consumer old and 2 waiting message(s)";
  const kept = "Its inbox rows and dead letters are kept.";
  expect(await cli("inbox", "retire", "old", "--dry-run")).toMatchObject({
    code: 0,
    stdout: `${text} would be deleted. ${kept} Dry run: nothing was changed.\n`,
  });
  expect(await cli("inbox", "retire", "old", "--reason", "renamed")).toMatchObject({
    code: 2,
    stderr: expect.stringContaining(`${text} are deleted. ${kept} Nothing was done: add --yes`),
  });
  expect(await waiting()).toBe(4);
  expect(await cli("inbox", "retire", "old", ...why)).toMatchObject({
    code: 0,
    stdout: `${text} were deleted. ${kept}\n`,
  });
  expect(await cli("inbox", "retire", "old-ships", ...why, "--json")).toMatchObject({ code: 0 });
  await second.publish(4);
  await sent();
  expect(await waiting()).toBe(0);
  expect(await count("consumer_inbox", "consumer_name = 'old'")).toBe(1);
  expect((await cli("status", "--check")).stdout).not.toContain("which runs nowhere");
  expect(await cli("verify")).toMatchObject({ code: 0 });

  await second.bus.stop();
  const third = await worker("old");
  await third.publish(5);
  await expect.poll(() => handled).toEqual(expect.arrayContaining(["old 5", "old ships 5"]));
  expect(handled.filter((one) => /^old( ships)? [1-4]$/.test(one)).toSorted()).toEqual([
    "old 1",
    "old ships 1",
  ]);
  const { rows } = await pool.query(
    `select actor, reason, target_id, outcome, error_code, before::jsonb as before
       from sagabox.audit_log where action = 'inbox.retire' order by id`,
  );
  const by = { actor: "ann", reason: "renamed" };
  expect(rows).toEqual([
    { ...by, target_id: "old", outcome: "refused", error_code: "CONSUMER_RUNNING", before: null },
    {
      ...by,
      target_id: "old",
      outcome: "done",
      error_code: null,
      before: { topics: ["events.order.placed"], deliveries: 2 },
    },
    expect.objectContaining({ ...by, target_id: "old-ships", outcome: "done" }),
  ]);
});

test("who takes over the commands of a retired consumer begins where that one was retired", async () => {
  const { cli, worker, handled, sent } = await setup();
  const first = await worker("old");
  await first.publish(1);
  await expect.poll(() => handled).toContain("old ships 1");
  await first.bus.stop();
  expect(await cli("inbox", "retire", "old-ships", ...why)).toMatchObject({ code: 0 });
  const publisher = await worker();
  await publisher.publish(2);
  await sent();
  await publisher.bus.stop();
  await worker("new");
  await expect.poll(() => handled).toContain("new ships 2");
  expect(handled).not.toContain("new ships 1");
});

test("a consumer nobody knows is refused with the names of those there are", async () => {
  const { cli, pool } = await setup();
  expect((await cli("inbox", "retire", "billing", "--dry-run")).stderr).toContain("It knows none.");
  await pool.query("insert into sagabox.consumer_group (name) values ('mail'), ('stock')");
  expect(await cli("inbox", "retire", "stok", ...why)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(
      'no consumer "stok". Did you mean stock? It knows: mail, stock. [CONSUMER_NOT_FOUND]',
    ),
  });
});

test("a dead letter whose replay still waited is given up with its consumer, and nothing counts as lost", async () => {
  const { cli, pool, count } = await setup();
  const about = { type: "order.ship", topic: "commands.order.ship" };
  await someDeadLetters(pool, about, [{ consumer: "old", letters: 3, error: "'broken ' || n" }]);
  await pool.query("update sagabox.dead_letter set kind = 'command'");
  await pool.query(`with gone as (insert into sagabox.consumer_group (name) values ('old') returning id)
    insert into sagabox.relay_lane (lane, scope) select id * 256 + n, id from gone, generate_series(0, 255) as n`);
  const letter = (await pool.query<{ id: string }>("select min(id)::text as id from sagabox.dead_letter"))
    .rows[0];
  expect(await cli("dlq", "replay", letter?.id ?? "", ...why)).toMatchObject({ code: 0 });
  expect(await count("queue")).toBe(1);
  expect(await cli("inbox", "retire", "old", ...why)).toMatchObject({ code: 0 });
  expect(await count("queue")).toBe(0);
  expect(await count("dead_letter", "closed_as = 'discarded'")).toBe(1);
  expect(await count("dead_letter", "closed_at is null")).toBe(2);
  expect((await cli("verify")).stdout).not.toContain("replay_lost");
});
