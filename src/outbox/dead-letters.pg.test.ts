import { expect, test, vi } from "vitest";
import { outgoing, relays, until, type Relays } from "../../test/support/relays.ts";
import { deadLetterStore, discardDeadLetter, replayDeadLetter } from "../dead-letter/index.ts";

const atOnce = { retry: { firstDelay: 0, maxDelay: 0 } };
const LETTER =
  "select message_id, reason, attempts, error_message, held_seq from sagabox.dead_letter order by id";

async function onlyDeadLetter(harness: Relays): Promise<string> {
  const rows = await harness.rows<{ id: string }>("select id::text from sagabox.dead_letter");
  expect(rows).toHaveLength(1);
  return rows[0]?.id ?? "";
}

test("A7: after its last attempt a message is a dead letter, with its attempts and its error", async () => {
  const harness = await relays();
  harness.transport.answer = () => "rejected";
  await harness.publish(outgoing({ id: "a", maxAttempts: 3 }));
  await harness.relay(atOnce).start();
  await harness.observer.until("dead_letter.buried");
  const error_message = 'scripted outcome "rejected"';
  expect(await harness.rows(LETTER)).toEqual([
    { message_id: "a", reason: "exhausted", attempts: 3, error_message, held_seq: null },
  ]);
  expect([await harness.waiting(), harness.transport.calls.length]).toEqual([0, 3]);
});

test("A7: delays grow with each failure, and the row stores attempts and the last error", async () => {
  const harness = await relays();
  harness.transport.answer = () => "rejected";
  vi.spyOn(Math, "random").mockReturnValue(0.5);
  await harness.publish(outgoing({ id: "a" }));
  await harness.relay({ retry: { firstDelay: 40, factor: 2, maxDelay: 1_000 } }).start();
  const failed = await harness.observer.until("relay.failed", 3);
  expect(failed.slice(0, 3).map(({ attempt, delayMs }) => [attempt, delayMs])).toEqual([
    [1, 20],
    [2, 40],
    [3, 80],
  ]);
  const [row] = await harness.rows<{ attempts: number; last_error: string }>("select * from sagabox.outbox");
  expect(row).toMatchObject({ last_error: 'scripted outcome "rejected"' });
  expect(row?.attempts).toBeGreaterThanOrEqual(3);
});

test("A7: a refused message is dead-lettered at once, and its key continues", async () => {
  const harness = await relays();
  harness.transport.answer = ({ id }) => (id === "a" ? "refused" : "published");
  await harness.publish(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
  await harness.relay().start();
  await harness.drained();
  expect(harness.transport.ids).toEqual(["b"]);
  expect(await harness.rows(LETTER)).toMatchObject([{ message_id: "a", reason: "rejected", attempts: 0 }]);
  expect(harness.observer.of("dead_letter.buried")).toMatchObject([
    { id: "a", origin: "outbox", consumer: null },
  ]);
});

test.each(["unreachable", "unknown"] as const)("A7: a broker that is %s counts no attempts", async (kind) => {
  const harness = await relays();
  harness.transport.answer = ({ topic }) =>
    topic === "down" && harness.transport.calls.length < 6 ? kind : "published";
  const down = ["1", "2", "3"].map((id) => outgoing({ id, key: "k", topic: "down", maxAttempts: 1 }));
  await harness.publish(...down, outgoing({ id: "up", topic: "up" }));
  await harness.relay().start();
  await harness.observer.until("relay.paused", 2);
  expect(await harness.rows("select sum(attempts)::int as n from sagabox.outbox")).toEqual([{ n: 0 }]);
  await harness.drained();
  expect(harness.transport.ids).toEqual(["up", "1", "2", "3"]);
  expect(await harness.rows(LETTER)).toEqual([]);
});

test("A7: a publish without an answer is unknown after the timeout, and is sent again", async () => {
  const harness = await relays();
  harness.transport.before = () =>
    harness.transport.calls.length === 1 ? new Promise(() => undefined) : Promise.resolve();
  await harness.publish(outgoing({ id: "a" }));
  await harness.relay({ publishTimeout: 50 }).start();
  await harness.drained();
  expect(harness.observer.of("relay.paused")).toMatchObject([{ reason: "unknown" }]);
  expect(harness.transport.ids).toEqual(["a"]);
});

test("onDead hold: a dead head holds all later messages of its key", async () => {
  const harness = await relays();
  harness.transport.answer = ({ id }) => (id === "1" ? "refused" : "published");
  await harness.publish(outgoing({ id: "1", key: "k", holdsOnDeath: true }), outgoing({ id: "2", key: "k" }));
  await harness.relay().start();
  await harness.observer.until("dead_letter.buried");
  for (let n = 3; n < 9; n++)
    await harness.publish(outgoing({ id: String(n), key: "k" }), outgoing({ id: `o${n}` }));
  await until(() => harness.transport.ids.length === 6);
  expect(harness.transport.ids.filter((id) => !id.startsWith("o"))).toEqual([]);
  expect(await harness.rows("select status from sagabox.outbox_events where event_id = '1'")).toEqual([
    { status: "dead_letter" },
  ]);
});

test("onDead hold: a replayed head is sent first, with fresh attempts, and its key follows", async () => {
  const harness = await relays();
  let healed = false;
  harness.transport.answer = ({ id }) => (id === "1" && !healed ? "rejected" : "published");
  await harness.publish(
    outgoing({ id: "1", key: "k", holdsOnDeath: true, maxAttempts: 2 }),
    outgoing({ id: "2", key: "k" }),
  );
  await harness.relay(atOnce).start();
  await harness.observer.until("dead_letter.buried");
  healed = true;
  await replayDeadLetter(deadLetterStore(harness.database, "sagabox"), await onlyDeadLetter(harness));
  await harness.drained();
  expect(harness.transport.ids).toEqual(["1", "2"]);
});

test("onDead hold: a recheck of its lane sends a replayed message at once", async () => {
  const harness = await relays();
  let healed = false;
  harness.transport.answer = ({ id }) => (id === "1" && !healed ? "refused" : "published");
  await harness.publish(outgoing({ id: "1", key: "k", holdsOnDeath: true }), outgoing({ id: "2", key: "k" }));
  const relay = harness.relay();
  await relay.start();
  await harness.observer.until("dead_letter.buried");
  await until(() => harness.database.count("sagabox.outbox.fetch") > 3);
  healed = true;
  const { lane } = await replayDeadLetter(
    deadLetterStore(harness.database, "sagabox"),
    await onlyDeadLetter(harness),
  );
  const began = performance.now();
  relay.recheck([lane]);
  await harness.drained();
  expect(performance.now() - began).toBeLessThan(1_500);
  expect(harness.transport.ids).toEqual(["1", "2"]);
});

test("onDead hold: after a discarded head its key continues", async () => {
  const harness = await relays();
  harness.transport.answer = ({ id }) => (id === "1" ? "refused" : "published");
  await harness.publish(outgoing({ id: "1", key: "k", holdsOnDeath: true }), outgoing({ id: "2", key: "k" }));
  await harness.relay().start();
  await harness.observer.until("dead_letter.buried");
  await discardDeadLetter(deadLetterStore(harness.database, "sagabox"), await onlyDeadLetter(harness));
  await harness.drained();
  expect(harness.transport.ids).toEqual(["2"]);
});

test("onDead continue: a replayed message comes after the messages its key has sent meanwhile", async () => {
  const harness = await relays();
  let healed = false;
  harness.transport.answer = ({ id }) => (id === "1" && !healed ? "refused" : "published");
  await harness.publish(outgoing({ id: "1", key: "k" }), outgoing({ id: "2", key: "k" }));
  await harness.relay().start();
  await harness.drained();
  healed = true;
  await replayDeadLetter(deadLetterStore(harness.database, "sagabox"), await onlyDeadLetter(harness));
  await until(() => harness.transport.ids.length === 2);
  expect(harness.transport.ids).toEqual(["2", "1"]);
});

test("A19: a message that was not sent within its time to live is a dead letter with the reason expired", async () => {
  const harness = await relays();
  await harness.publish(
    outgoing({ id: "old", key: "k", ttlMs: 1, holdsOnDeath: true }),
    outgoing({ id: "young", key: "k", ttlMs: 60_000 }),
  );
  await until(
    async () => (await harness.rows("select 1 from sagabox.outbox where expires_at < now()")).length === 1,
  );
  await harness.relay().start();
  await harness.drained();
  expect(harness.transport.ids).toEqual(["young"]);
  expect(await harness.rows(LETTER)).toMatchObject([
    { message_id: "old", reason: "expired", attempts: 0, held_seq: null },
  ]);
});

test("a dead letter is recorded when the database is back, and nothing is sent twice", async () => {
  const harness = await relays();
  harness.transport.answer = ({ id }) => (id === "a" ? "refused" : "published");
  harness.database.failOnce("sagabox.outbox.dead");
  harness.database.loseReply("sagabox.outbox.dead");
  await harness.publish(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
  await harness.relay().start();
  await harness.drained();
  expect(harness.transport.ids).toEqual(["b"]);
  expect(await harness.rows(LETTER)).toMatchObject([{ message_id: "a" }]);
});
