import { command, createBus, event, message, permanent } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { cliInProcess } from "../support/run-cli.ts";
import { until } from "../support/relays.ts";
import { ScriptedTransport } from "../support/scripted-transport.ts";
import { rolesHarness, type RolesHarness } from "../support/roles-harness.ts";

vi.setConfig({ testTimeout: 90_000 });

const Order = z.object({ id: z.string(), name: z.string().default("CANARY") });
const Placed = event("order.placed", { schema: Order, key: ({ id }) => id });
const Strict = event("order.moved", { schema: Order, key: ({ id }) => id, order: "strict" });
const Booked = event("order.booked", { schema: Order, key: ({ id }) => id });
const Price = command("price.of", { schema: Order, reply: z.object({ cents: z.number() }) });

/** An owner that migrates and keeps the partitions, a relay, and a consumer that books what it sees. */
async function openService(harness: RolesHarness) {
  const owner = await harness.bus(["owner"]);
  await owner.migrate();
  await owner.run({ parts: ["upkeep"] });
  const relay = await harness.bus(["relay"]);
  await relay.run({ parts: ["relay"] });
  const consumer = await harness.bus(["consumer"]);
  const seen: string[] = [];
  const failedOnce = new Set<string>();
  consumer.on(
    Placed,
    { consumer: "books", from: "beginning", retry: { firstDelay: 10 } },
    async ({ data }, { publish }) => {
      if (data.id.startsWith("shaky") && !failedOnce.has(data.id)) {
        failedOnce.add(data.id);
        throw new Error("not yet");
      }
      if (data.id.startsWith("dead") && !failedOnce.has(data.id)) {
        failedOnce.add(data.id);
        throw permanent(`cannot book ${data.name}`);
      }
      seen.push(data.id);
      await publish(Booked, data);
    },
  );
  const booked: string[] = [];
  consumer.onBatch(Booked, { consumer: "mails" }, (messages) => {
    booked.push(...messages.map(({ data }) => data.id));
  });
  consumer.on(Strict, { consumer: "moves" }, ({ data }) => void seen.push(`moved ${data.id}`));
  consumer.on(Price, { consumer: "prices" }, () => ({ cents: 100 }));
  await consumer.run({ parts: ["consumers"] });
  return { owner, relay, consumer, seen, booked };
}

test("G10: a writer that may only insert publishes in every way, and relay, consumer and owner do the rest", async () => {
  const harness = await rolesHarness();
  const { seen, booked } = await openService(harness);
  const writer = await harness.bus(["writer"]);
  const pool = await harness.as("writer");
  const client = await pool.connect();
  await client.query("begin");
  await writer.publish(client, Placed, { id: "client" });
  await writer.publishAll(client, [message(Placed, { id: "batch-1" }), message(Placed, { id: "batch-2" })]);
  await client.query("commit");
  client.release();
  await writer.transaction(async (tx) => {
    await tx.publish(Placed, { id: "transaction" });
    await tx.publish(Placed, { id: "later" }, { delay: 50 });
    await tx.publish(Placed, { id: "shaky" });
    await tx.publish(Strict, { id: "s1" });
    expect(await tx.publish(Placed, { id: "own" }, { id: "own-1" })).toMatchObject({ written: true });
    await tx.publish(Placed, { id: "own-later" }, { id: "own-2", delay: 50 });
  });
  const again = await writer.transaction((tx) => tx.publish(Placed, { id: "own" }, { id: "own-1" }));
  expect(again.written).toBe(false);
  const all = [
    "client",
    "batch-1",
    "batch-2",
    "transaction",
    "later",
    "shaky",
    "moved s1",
    "own",
    "own-later",
  ];
  await until(() => seen.length >= all.length);
  await until(() => booked.length >= all.length - 1);
  expect(seen.toSorted()).toEqual(all.toSorted());
  await until(async () => (await harness.count("queue")) === 0);
  expect(await harness.count("message", "tableoid::regclass::text like '%default'")).toBe(0);
  expect(harness.troubles()).toEqual([]);
});

test("G10: an operator decides about dead letters, and a viewer sees all of it without a word of the payload", async () => {
  const harness = await rolesHarness();
  const { seen, booked } = await openService(harness);
  const writer = await harness.bus(["writer"]);
  await writer.transaction(async (tx) => {
    for (const id of ["dead-1", "dead-2", "fine"])
      await tx.publish(Placed, { id }, { delay: id === "fine" ? 1 : 0 });
    await tx.publish(Placed, { id: "far" }, { delay: "1h" });
  });
  await until(async () => (await harness.count("dead_letter")) === 2);
  const operator = await harness.bus(["operator"]);
  const letters = await operator.deadLetters.list();
  expect((await operator.deadLetters.show(letters[0]?.id ?? "")).dlq_metadata.error_message).toContain(
    "CANARY",
  );
  await operator.deadLetters.replay(letters[0]?.id ?? "", { actor: "ann", reason: "repaired" });
  await operator.deadLetters.discard(letters[1]?.id ?? "", { actor: "ann", reason: "obsolete" });
  await until(() => seen.filter((id) => id.startsWith("dead")).length === 1);
  await until(() => booked.length === 2);
  const explained = await cliInProcess(["explain", letters[0]?.messageId ?? ""], {
    DATABASE_URL: await harness.login("operator"),
  });
  expect(explained).toMatchObject({ code: 0, stderr: "", stdout: expect.stringContaining("order.placed") });
  for (const action of ["list", "verify"]) {
    const audit = await cliInProcess(["audit", action], { DATABASE_URL: await harness.login("operator") });
    expect(audit, action).toMatchObject({ code: 0, stderr: "" });
  }
  const sent = await operator.republish({
    from: new Date(Date.now() - 60_000),
    to: new Date(Date.now() + 60_000),
  });
  expect(sent.count).toBeGreaterThan(2);
  expect(await operator.inbox.stats()).not.toEqual([]);
  const viewer = await harness.as("viewer");
  const { rows: views } = await harness.pool.query<{ name: string }>(
    "select viewname as name from pg_views where schemaname = 'sagabox' and viewname like 'masked%'",
  );
  const rows = await Promise.all(views.map(({ name }) => viewer.query(`select * from sagabox.${name}`)));
  const told = JSON.stringify(rows.map((result) => result.rows as unknown[]));
  expect(told).toContain("order.placed");
  expect(told).not.toContain("CANARY");
  const filled = views.filter((_, n) => (rows[n]?.rowCount ?? 0) > 0).map(({ name }) => name);
  const atLeast = ["message", "outbox_events", "scheduled", "dead_letter", "consumer_inbox", "audit_log"];
  expect(filled).toEqual(expect.arrayContaining(atLeast.map((name) => `masked_${name}`)));
  expect(harness.troubles()).toEqual([]);
});

test("G10: a relay notes failures, retries, buries what is refused or too late, and never touches the message", async () => {
  const harness = await rolesHarness();
  const owner = await harness.bus(["owner"]);
  await owner.migrate();
  const writer = await harness.bus(["writer"]);
  await writer.transaction(async (tx) => {
    for (const id of ["fine", "once", "never"]) await tx.publish(Placed, { id });
    await tx.publish(Placed, { id: "late" }, { ttl: 1 });
  });
  const transport = new ScriptedTransport();
  const failed = new Set<string>();
  transport.answer = ({ key }) => {
    if (key === "never") return "refused";
    if (key !== "once" || failed.has(key)) return "published";
    failed.add(key);
    return "rejected";
  };
  const outbox = { optimistic: false, retry: { firstDelay: 10 } };
  const relay = await harness.bus(["relay"], { transport, outbox });
  await relay.run({ parts: ["relay"] });
  await until(async () => (await harness.count("outbox")) === 0);
  expect(transport.published.map(({ key }) => key ?? "").toSorted()).toEqual(["fine", "once"]);
  expect(await harness.count("dead_letter", "reason in ('rejected', 'expired')")).toBe(2);
  expect(harness.troubles()).toEqual([]);
});

test("G10: an operator sends a letter from the place it held, frees a key, and restores what is gone", async () => {
  const harness = await rolesHarness();
  const owner = await harness.bus(["owner"]);
  await owner.migrate();
  const writer = await harness.bus(["writer"]);
  await writer.transaction(async (tx) => {
    for (const id of ["a", "b", "c"]) await tx.publish(Placed, { id }, { id });
  });
  await harness.pool.query("update sagabox.outbox set due_at = 'infinity'");
  await harness.pool.query(
    `insert into sagabox.dead_letter
       (origin, message_id, kind, type, schema_version, topic, key, correlation_id, traceparent, source, priority,
        max_attempts, headers, data, written_at, reason, attempts, error_type, error_message, held_lane, held_seq)
     select 'outbox', id, kind, type, schema_version, topic, key, correlation_id, traceparent, source, priority,
            max_attempts, headers, data, written_at, 'buried', 0, 'Error', 'buried', lane, seq
       from sagabox.message order by id`,
  );
  const operator = await harness.bus(["operator"]);
  const byMessage = new Map(
    (await operator.deadLetters.list()).map((letter) => [letter.messageId, letter.id]),
  );
  const [a, b, c] = ["a", "b", "c"].map((id) => byMessage.get(id) ?? "");
  const people = await harness.as("operator");
  const { rows: early } = await people.query("select sagabox.dead_letter_rearm($1) as done", [a]);
  expect(early).toEqual([{ done: false }]); // an open letter is not touched
  await operator.deadLetters.replay(a ?? "", { reason: "x" });
  await operator.deadLetters.discard(b ?? "", { reason: "x" });
  await harness.pool.query(
    "delete from sagabox.message where id = 'c'; delete from sagabox.outbox where message_id = 'c'",
  );
  await operator.deadLetters.replay(c ?? "", { reason: "x" });
  const { rows } = await harness.pool.query(
    "select message_id, due_at < 'infinity' as due from sagabox.outbox order by message_id",
  );
  expect(rows).toEqual([
    { message_id: "a", due: true },
    { message_id: "c", due: true },
  ]);
  expect(await harness.count("message", "id = 'c' and data like '%CANARY%'")).toBe(1);
});

test("G10: requests are asked and answered between consumers", async () => {
  const harness = await rolesHarness();
  await openService(harness);
  const asking = await harness.bus(["consumer"], { service: "web" });
  await asking.run({ parts: ["consumers"] });
  expect(await asking.request(Price, { id: "1" }, { timeout: "20s" })).toEqual({ cents: 100 });
  expect(harness.troubles()).toEqual([]);
});

test("G10: an error about a missing right names in one line the role that has it", async () => {
  const harness = await rolesHarness();
  const start = async (
    roles: Parameters<RolesHarness["bus"]>[0],
    parts: ("relay" | "consumers" | "sagas" | "upkeep")[],
  ) => {
    const bus = await harness.bus(roles);
    return bus.run({ parts }).then(
      () => "ran",
      ({ code, message: text }: { code: string; message: string }) => `${code}: ${text}`,
    );
  };
  expect(await start(["writer"], ["relay"])).toMatch(/^STORAGE_PERMISSION_DENIED: .*grant sagabox_relay to/);
  expect(await start(["relay"], ["consumers"])).toMatch(
    /^STORAGE_PERMISSION_DENIED: .*grant sagabox_consumer to/,
  );
  expect(await start(["consumer"], ["sagas"])).toMatch(
    /^STORAGE_PERMISSION_DENIED: .*on saga_instance.*sagabox_saga to/,
  );
  expect(await start(["worker"], ["upkeep"])).toMatch(/^STORAGE_PERMISSION_DENIED: .*does not own.*"upkeep"/);
  expect(await start([], ["relay"])).toMatch(/^STORAGE_PERMISSION_DENIED: .*sagabox roles sql/);
  const eager = createBus({ service: "shop", database: await harness.login("writer"), log: false });
  onTestFinished(async () => void (await eager.stop()));
  await expect(eager.transaction((tx) => tx.publish(Placed, { id: "1" }))).rejects.toMatchObject({
    code: "STORAGE_PERMISSION_DENIED",
    message: expect.stringMatching(/needs the writer role.*outbox\.optimistic to false/),
  });
  const viewer = await harness.bus(["viewer"]);
  await expect(viewer.deadLetters.list()).rejects.toMatchObject({
    code: "STORAGE_PERMISSION_DENIED",
    message: expect.stringContaining("the operator role"),
  });
  await expect(viewer.migrate()).rejects.toMatchObject({
    code: "STORAGE_PERMISSION_DENIED",
    message: expect.stringContaining("the owner role"),
  });
});
