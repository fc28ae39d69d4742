import { event, permanent } from "sagabox";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { until } from "../../test/support/relays.ts";
import { rolesHarness } from "../../test/support/roles-harness.ts";

vi.setConfig({ testTimeout: 60_000 });

const Placed = event("order.placed", { schema: z.object({ id: z.string() }), key: ({ id }) => id });

test("status: what waits, who works and what died on one screen, for a role that may only look", async () => {
  const house = await rolesHarness();
  const env = { DATABASE_URL: await house.login("viewer") };
  const status = (...args: string[]) => cliInProcess(["status", ...args], env);

  const fresh = await status("--check");
  expect(fresh).toMatchObject({ code: 3, stderr: "" });
  expect(fresh.stdout).toMatch(
    /^1 problem\(s\)\n {2}no lane is owned by .*; no worker has run on this database yet → sagabox worker --app/,
  );

  const bus = await house.bus(["worker"]);
  await bus.transaction((tx) => tx.publish(Placed, { id: "o1" }));
  await bus.transaction((tx) => tx.publish(Placed, { id: "o2" }, { delay: "1h" }));
  const alone = await status("--check");
  expect(alone.code).toBe(3);
  expect(alone.stdout).toMatch(
    /^1 problem\(s\)\n {2}no lane is owned by a running worker, and 1 message\(s\) wait/,
  );
  expect(alone.stdout).toMatch(/^scheduled +1$/m);
  expect(alone.stdout).toContain("No worker is known.");
  expect((await status()).code).toBe(0);

  bus.on(Placed, { consumer: "mail" }, () => {
    throw permanent("no \u001b[31mstamp");
  });
  await bus.run({ parts: ["relay", "consumers"] });
  const seen = async () => JSON.parse((await status("--json")).stdout) as Record<string, unknown>;
  await until(async () => ((await seen())["deadLetters"] as { count: number }).count === 1);
  expect(await seen()).toMatchObject({
    healthy: false,
    problems: [{ what: "1 dead letter(s) are open", command: "sagabox dlq list" }],
    outbox: { waiting: { count: 0, exact: true }, scheduled: { count: 1, exact: true }, heldKeys: 0 },
    lanes: { total: 256, unowned: 0 },
    consumers: [{ name: "mail", topics: 1, waiting: { count: 0, exact: true }, ownedLanes: 256 }],
    workers: [{ live: true, relayLanes: 256, goneSeconds: null }],
    sagas: { running: 0, compensating: 0, failed: 0 },
  });
  const text = (await status()).stdout;
  expect(text).toMatch(/^dead letters {2}1 open, 0 key\(s\) held back$/m);
  expect(text).toMatch(/^mail +1 +0 +0 +– +256$/m);
  expect(await seen()).toMatchObject({
    consumers: [{ lags: [{ topic: "events.order.placed", waiting: { count: 0 }, oldestAgeSeconds: 0 }] }],
  });
  expect(text).not.toContain("\u001b");
});

test("status: a consumer of a broker shows what a worker measured, topic by topic, and unknown instead of 0", async () => {
  const house = await rolesHarness();
  const env = { DATABASE_URL: await house.login("viewer") };
  const status = async (...args: string[]) => (await cliInProcess(["status", ...args], env)).stdout;
  const measure = async (consumer: string, age: string, lags: readonly object[]) => {
    await house.pool.query(
      `insert into sagabox.consumer_lag (consumer, transport, claimed_at, measured_at, lags)
       values ($1, 'kafka', now(), now() - $2::interval, $3)`,
      [consumer, age, JSON.stringify(lags)],
    );
  };
  await house.pool.query(
    "insert into sagabox.consumer_group (name) values ('billing'), ('mail'), ('silent'), ('new')",
  );
  await measure("billing", "1 second", [
    { topic: "events.order", waiting: 1_200, oldestAgeSeconds: 720 },
    { topic: "events.refund", waiting: 4, oldestAgeSeconds: null },
  ]);
  await measure("mail", "10 minutes", [{ topic: "events.order", waiting: 0, oldestAgeSeconds: 0 }]);
  await measure("silent", "1 second", [{ topic: "events.order", waiting: null, oldestAgeSeconds: null }]);
  await house.pool.query(
    "insert into sagabox.consumer_lag (consumer, transport, claimed_at) values ('new', 'kafka', now())",
  );
  const text = await status();
  expect(text).toMatch(/^billing +2 +1204 +0 +unknown +0$/m);
  expect(text).toMatch(/^ {2}events.order +– +1200 +– +12 min +–$/m);
  expect(text).toMatch(/^ {2}events.refund +– +4 +– +unknown +–$/m);
  expect(text).toMatch(/^mail +0 +unknown +0 +unknown +0$/m); // measured too long ago
  expect(text).toMatch(/^silent +1 +unknown +0 +unknown +0$/m);
  expect(text).toMatch(/^new +0 +unknown +0 +unknown +0$/m);
  expect(text).toContain("1204 message(s) wait for consumer billing, which runs nowhere");
  const { consumers } = JSON.parse(await status("--json")) as { consumers: readonly { name: string }[] };
  expect(consumers.find(({ name }) => name === "silent")).toMatchObject({
    waiting: "unknown",
    oldestAgeSeconds: "unknown",
    lags: [{ topic: "events.order", waiting: "unknown", oldestAgeSeconds: "unknown" }],
  });
});

test("status --check is healthy while a relay is alive, and not without one, though nothing waits", async () => {
  const house = await rolesHarness();
  const env = { DATABASE_URL: await house.login("viewer") };
  const check = () => cliInProcess(["status", "--check"], env);
  const bus = await house.bus(["worker"]);
  await bus.run({ parts: ["relay"] });
  await until(async () => (await check()).code === 0);
  expect((await check()).stdout).toMatch(/^healthy\n/);
  await bus.stop();
  const { code, stdout } = await check();
  expect(code).toBe(3);
  expect(stdout).toMatch(
    /^1 problem\(s\)\n {2}no lane is owned by a running worker, and published messages wait/,
  );
});
