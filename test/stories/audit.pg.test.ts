import { command, event, permanent, saga } from "sagabox";
import { expect, test } from "vitest";
import { z } from "zod";
import { checkAndKeep, replayAs, whoDidWhat } from "../../examples/guides/audit.ts";
import { cliInProcess } from "../support/run-cli.ts";
import { until } from "../support/relays.ts";
import { sagaFixture } from "../support/saga-fixture.ts";

const Order = z.object({ orderId: z.string() });
const Charge = command("audit.charge", { schema: Order, reply: z.object({ paymentId: z.string() }) });
const Noise = event("audit.noise", { schema: Order, key: (data) => data.orderId });

let ships = 0;
const placeOrder = saga("audited-order", { version: 1, input: Order, key: (order) => order.orderId })
  .send("charge", Charge, (c) => c.input)
  .pivot()
  .run("ship", (c) => {
    ships += 1;
    if (ships === 1) throw permanent(`no carrier for ${c.input.orderId}`);
    return { parcel: "p-7" };
  });

test("G10: the audit log alone shows the history of a saga that an operator decided about", async () => {
  const { bus, pool, ends, url } = await sagaFixture({ audit: { sealEvery: 200 } });
  bus.on(Charge, { consumer: "payments" }, () => Promise.resolve({ paymentId: "pay-1" }));
  bus.register(placeOrder);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, placeOrder, { orderId: "o-1" }));
  await ends(sagaId, "failed");
  const retry = { step: "ship", actor: "ada", reason: "carrier is back" };
  expect(await bus.sagas.retry(sagaId, retry)).toMatchObject({ accepted: true });
  await ends(sagaId, "completed");
  await expect(bus.sagas.cancel(sagaId, { actor: "bob", reason: "too late" })).rejects.toMatchObject({
    code: "SAGA_ACTION_REFUSED",
  });
  await expect(bus.sagas.cancel("nobody", { actor: "eve", reason: "curious" })).rejects.toMatchObject({
    code: "SAGA_NOT_FOUND",
  });
  // From here on nothing but the log knows of it.
  await pool.query("delete from sagabox.saga_instance");

  const story = (await bus.audit.list({ sagaId })).toReversed();
  const moves = story.filter(({ action }) => action === "saga.state_changed" || action === "saga.failed");
  const transitions = moves.flatMap(({ saga }) => (saga?.step === null ? [`${saga.from} → ${saga.to}`] : []));
  expect(transitions).toEqual([
    "started → running",
    "running → completing",
    "completing → failed",
    "failed → completing",
    "completing → completed",
  ]);
  const decided = story.filter(({ actor }) => actor !== null);
  expect(decided.map(({ actor, reason, outcome }) => [actor, reason, outcome])).toContainEqual([
    "ada",
    "carrier is back",
    "done",
  ]);
  expect(story.at(-1)).toMatchObject({
    action: "saga.ignored",
    actor: "bob",
    reason: "too late",
    outcome: "refused",
  });
  expect(await bus.audit.list({ actor: "eve" })).toMatchObject([
    {
      log: "action",
      action: "saga.cancel",
      target: { id: "nobody" },
      outcome: "refused",
      errorCode: "SAGA_NOT_FOUND",
    },
  ]);
  // Every line carries the one trace, and before and after of what it changed.
  expect(new Set(story.map(({ traceId }) => traceId)).size).toBe(1);
  expect(await bus.audit.list({ traceId: story[0]?.traceId ?? "" })).toHaveLength(story.length);
  const changes = story.flatMap(({ saga }) => (saga?.newState === null ? [] : [saga?.newState]));
  expect(changes).toContainEqual(
    expect.objectContaining({
      records: expect.objectContaining({
        ship: expect.objectContaining({ status: "failed" }) as unknown,
      }) as unknown,
    }),
  );
  expect(await bus.sagas.history(sagaId)).toHaveLength(story.length);

  await until(async () => (await bus.audit.verify()).unsealed.count === 0, 20_000);
  const report = await bus.audit.verify();
  expect(report).toMatchObject({ ok: true, rows: story.length + 1 });
  const verified = await cliInProcess(["audit", "verify", "--anchor", report.head ?? ""], {
    DATABASE_URL: url,
  });
  expect(verified).toMatchObject({ code: 0, stdout: expect.stringContaining("OK: ") as string });
});

test("E4: each decision about a dead letter is in the log once, with who, why, before and after; refused ones too", async () => {
  const { bus } = await sagaFixture();
  let broken = true;
  bus.on(Noise, { consumer: "listener", retry: { maxAttempts: 1 } }, () => {
    if (broken) throw permanent("not now");
    return Promise.resolve();
  });
  await bus.run();
  for (const orderId of ["a", "b", "c"]) await bus.transaction((tx) => bus.publish(tx, Noise, { orderId }));
  await until(async () => (await bus.deadLetters.list({ open: true })).length === 3);
  const [third, second, first] = (await bus.deadLetters.list()).map(({ id }) => id);
  broken = false;
  await bus.deadLetters.replay(first ?? "");
  await bus.deadLetters.replay(second ?? "", { actor: "ada", reason: "fixed in 1.2" });
  await bus.deadLetters.discard(third ?? "", { actor: "bob", reason: "test data" });
  await expect(bus.deadLetters.discard(third ?? "", { actor: "eve" })).rejects.toMatchObject({
    code: "DEAD_LETTER_CLOSED",
  });
  await expect(bus.deadLetters.replay("no\0id", { actor: "eve" })).rejects.toMatchObject({
    code: "DEAD_LETTER_NOT_FOUND",
  });
  await expect(bus.deadLetters.replay("1", { actor: " " })).rejects.toMatchObject({
    code: "OPTIONS_INVALID",
  });
  const lines = (await bus.audit.list({ target: { kind: "dead_letter" } })).toReversed();
  expect(
    lines.map((line) => [line.action, line.target.id, line.actor, line.reason, line.outcome, line.errorCode]),
  ).toEqual([
    ["dead_letter.replay", first, "shop", null, "done", null],
    ["dead_letter.replay", second, "ada", "fixed in 1.2", "done", null],
    ["dead_letter.discard", third, "bob", "test data", "done", null],
    ["dead_letter.discard", third, "eve", null, "refused", "DEAD_LETTER_CLOSED"],
    ["dead_letter.replay", "no\uFFFDid", "eve", null, "refused", "DEAD_LETTER_NOT_FOUND"],
  ]);
  expect(lines[2]).toMatchObject({
    before: { state: "open", reason: "rejected" },
    after: { state: "discarded", consumer: "listener", type: "audit.noise" },
    traceId: expect.stringMatching(/^[0-9a-f]{32}$/) as string,
  });
});

test("E4: what is published again is in the log page by page, and so is a window that is refused", async () => {
  const { bus } = await sagaFixture();
  bus.on(Noise, { consumer: "listener" }, () => Promise.resolve());
  await bus.run();
  const from = new Date(Date.now() - 60_000);
  for (let n = 0; n < 5; n += 1) await bus.transaction((tx) => bus.publish(tx, Noise, { orderId: `o-${n}` }));
  const to = new Date(Date.now() + 60_000);
  let count = 0;
  await until(async () => {
    count = (await bus.republish({ from, to, pageSize: 2, actor: "ada", reason: "broker lost them" })).count;
    return count > 0;
  });
  const lines = await bus.audit.list({ action: "outbox.republish", outcome: "done" });
  const sent = lines.map(({ after }) => (after as { count: number }).count).reduce((sum, n) => sum + n, 0);
  expect(sent).toBe(count);
  expect(lines[0]).toMatchObject({ actor: "ada", reason: "broker lost them" });
  await expect(bus.republish({ from: to, to: from })).rejects.toMatchObject({ code: "OPTIONS_INVALID" });
  expect(await bus.audit.list({ outcome: "refused" })).toMatchObject([
    { action: "outbox.republish", actor: "shop", errorCode: "OPTIONS_INVALID" },
  ]);
});

test("the code of the guide acts, looks, and keeps heads elsewhere", async () => {
  const { bus, pool } = await sagaFixture();
  let broken = true;
  bus.on(Noise, { consumer: "listener" }, () => {
    if (broken) throw permanent("not now");
    return Promise.resolve();
  });
  await bus.run();
  await bus.transaction((tx) => bus.publish(tx, Noise, { orderId: "a" }));
  await until(async () => (await bus.deadLetters.list({ open: true })).length === 1);
  broken = false;
  const [letter] = await bus.deadLetters.list();
  await replayAs(bus, letter?.id ?? "", "ada");
  expect(await whoDidWhat(bus, "ada")).toEqual([
    `dead_letter.replay, ${letter?.id}, done, the address service is back`,
  ]);
  await until(async () => (await bus.audit.seal()).head !== null, 20_000);
  const heads: string[] = [];
  await checkAndKeep(bus, heads);
  await checkAndKeep(bus, heads);
  expect(heads).toHaveLength(2);
  // The owner of the database starts over; only the head that was kept elsewhere shows it.
  const client = await pool.connect();
  await client.query("set session_replication_role = replica");
  await client.query("delete from sagabox.audit_seal");
  client.release(true);
  expect(await bus.audit.verify()).toMatchObject({ ok: true });
  await expect(checkAndKeep(bus, heads)).rejects.toThrow("the end of the chain was replaced");
});
