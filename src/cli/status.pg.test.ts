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
  expect(text).not.toContain("\u001b");
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
