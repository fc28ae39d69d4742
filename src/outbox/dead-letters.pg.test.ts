import { expect, test, vi } from "vitest";
import { outgoing, relays, until, type Relays } from "../../test/support/relays.ts";
import { deadLetterStore, discardDeadLetter, replayDeadLetter } from "../dead-letter/index.ts";

const atOnce = { retry: { firstDelay: 0, maxDelay: 0 } };
const LETTER =
  "select message_id, reason, attempts, error_message, held_seq from sagabox.dead_letter order by id";

async function onlyLetter(house: Relays): Promise<string> {
  const rows = await house.rows<{ id: string }>("select id::text from sagabox.dead_letter");
  expect(rows).toHaveLength(1);
  return rows[0]?.id ?? "";
}

test("A7: after its last attempt a message is a dead letter, with its attempts and its error", async () => {
  const house = await relays();
  house.transport.answer = () => "rejected";
  await house.publish(outgoing({ id: "a", maxAttempts: 3 }));
  await house.relay(atOnce).start();
  await house.observer.until("dead_letter.buried");
  const error_message = 'told to answer "rejected"';
  expect(await house.rows(LETTER)).toEqual([
    { message_id: "a", reason: "exhausted", attempts: 3, error_message, held_seq: null },
  ]);
  expect([await house.waiting(), house.transport.calls.length]).toEqual([0, 3]);
});

test("A7: a failure waits longer each time, and the row tells how often and why it failed", async () => {
  const house = await relays();
  house.transport.answer = () => "rejected";
  vi.spyOn(Math, "random").mockReturnValue(0.5);
  await house.publish(outgoing({ id: "a" }));
  await house.relay({ retry: { firstDelay: 40, factor: 2, maxDelay: 1_000 } }).start();
  const failed = await house.observer.until("relay.failed", 3);
  expect(failed.slice(0, 3).map(({ attempt, delayMs }) => [attempt, delayMs])).toEqual([
    [1, 20],
    [2, 40],
    [3, 80],
  ]);
  const [row] = await house.rows<{ attempts: number; last_error: string }>("select * from sagabox.outbox");
  expect(row).toMatchObject({ last_error: 'told to answer "rejected"' });
  expect(row?.attempts).toBeGreaterThanOrEqual(3);
});

test("A7: what can never be sent dies at once, and its key goes on", async () => {
  const house = await relays();
  house.transport.answer = ({ id }) => (id === "a" ? "refused" : "published");
  await house.publish(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
  await house.relay().start();
  await house.drained();
  expect(house.transport.ids).toEqual(["b"]);
  expect(await house.rows(LETTER)).toMatchObject([{ message_id: "a", reason: "rejected", attempts: 0 }]);
  expect(house.observer.of("dead_letter.buried")).toMatchObject([
    { id: "a", origin: "outbox", consumer: null },
  ]);
});

test.each(["unreachable", "unknown"] as const)(
  "A7: a broker that is %s charges nothing, however long",
  async (kind) => {
    const house = await relays();
    house.transport.answer = ({ topic }) =>
      topic === "down" && house.transport.calls.length < 6 ? kind : "published";
    const down = ["1", "2", "3"].map((id) => outgoing({ id, key: "k", topic: "down", maxAttempts: 1 }));
    await house.publish(...down, outgoing({ id: "up", topic: "up" }));
    await house.relay().start();
    await house.observer.until("relay.paused", 2);
    expect(await house.rows("select sum(attempts)::int as n from sagabox.outbox")).toEqual([{ n: 0 }]);
    await house.drained();
    expect(house.transport.ids).toEqual(["up", "1", "2", "3"]);
    expect(await house.rows(LETTER)).toEqual([]);
  },
);

test("A7: a publish that never answers is unknown after its time, and sent again", async () => {
  const house = await relays();
  house.transport.before = () =>
    house.transport.calls.length === 1 ? new Promise(() => undefined) : Promise.resolve();
  await house.publish(outgoing({ id: "a" }));
  await house.relay({ publishTimeout: 50 }).start();
  await house.drained();
  expect(house.observer.of("relay.paused")).toMatchObject([{ reason: "unknown" }]);
  expect(house.transport.ids).toEqual(["a"]);
});

test("onDead hold: a dead head keeps its key waiting, however much is written behind it", async () => {
  const house = await relays();
  house.transport.answer = ({ id }) => (id === "1" ? "refused" : "published");
  await house.publish(outgoing({ id: "1", key: "k", holdsOnDeath: true }), outgoing({ id: "2", key: "k" }));
  await house.relay().start();
  await house.observer.until("dead_letter.buried");
  for (let n = 3; n < 9; n++)
    await house.publish(outgoing({ id: String(n), key: "k" }), outgoing({ id: `o${n}` }));
  await until(() => house.transport.ids.length === 6);
  expect(house.transport.ids.filter((id) => !id.startsWith("o"))).toEqual([]);
  expect(await house.rows("select status from sagabox.outbox_events where event_id = '1'")).toEqual([
    { status: "dead_letter" },
  ]);
});

test("onDead hold: replayed, it goes first and its key behind it, with all its attempts anew", async () => {
  const house = await relays();
  let healed = false;
  house.transport.answer = ({ id }) => (id === "1" && !healed ? "rejected" : "published");
  await house.publish(
    outgoing({ id: "1", key: "k", holdsOnDeath: true, maxAttempts: 2 }),
    outgoing({ id: "2", key: "k" }),
  );
  await house.relay(atOnce).start();
  await house.observer.until("dead_letter.buried");
  healed = true;
  await replayDeadLetter(deadLetterStore(house.database, "sagabox"), await onlyLetter(house));
  await house.drained();
  expect(house.transport.ids).toEqual(["1", "2"]);
});

test("onDead hold: a recheck of its lane makes a replay felt at once", async () => {
  const house = await relays();
  let healed = false;
  house.transport.answer = ({ id }) => (id === "1" && !healed ? "refused" : "published");
  await house.publish(outgoing({ id: "1", key: "k", holdsOnDeath: true }), outgoing({ id: "2", key: "k" }));
  const relay = house.relay();
  await relay.start();
  await house.observer.until("dead_letter.buried");
  await until(() => house.database.count("sagabox.outbox.fetch") > 3);
  healed = true;
  const { lane } = await replayDeadLetter(
    deadLetterStore(house.database, "sagabox"),
    await onlyLetter(house),
  );
  const began = performance.now();
  relay.recheck([lane]);
  await house.drained();
  expect(performance.now() - began).toBeLessThan(1_500);
  expect(house.transport.ids).toEqual(["1", "2"]);
});

test("onDead hold: discarded, it lets its key go on without it", async () => {
  const house = await relays();
  house.transport.answer = ({ id }) => (id === "1" ? "refused" : "published");
  await house.publish(outgoing({ id: "1", key: "k", holdsOnDeath: true }), outgoing({ id: "2", key: "k" }));
  await house.relay().start();
  await house.observer.until("dead_letter.buried");
  await discardDeadLetter(deadLetterStore(house.database, "sagabox"), await onlyLetter(house));
  await house.drained();
  expect(house.transport.ids).toEqual(["2"]);
});

test("onDead continue: replayed later, it comes after what its key has sent meanwhile", async () => {
  const house = await relays();
  let healed = false;
  house.transport.answer = ({ id }) => (id === "1" && !healed ? "refused" : "published");
  await house.publish(outgoing({ id: "1", key: "k" }), outgoing({ id: "2", key: "k" }));
  await house.relay().start();
  await house.drained();
  healed = true;
  await replayDeadLetter(deadLetterStore(house.database, "sagabox"), await onlyLetter(house));
  await until(() => house.transport.ids.length === 2);
  expect(house.transport.ids).toEqual(["2", "1"]);
});

test("A19: a message that was not sent within its time to live is a dead letter with the reason expired", async () => {
  const house = await relays();
  await house.publish(
    outgoing({ id: "old", key: "k", ttlMs: 1, holdsOnDeath: true }),
    outgoing({ id: "young", key: "k", ttlMs: 60_000 }),
  );
  await until(
    async () => (await house.rows("select 1 from sagabox.outbox where expires_at < now()")).length === 1,
  );
  await house.relay().start();
  await house.drained();
  expect(house.transport.ids).toEqual(["young"]);
  expect(await house.rows(LETTER)).toMatchObject([
    { message_id: "old", reason: "expired", attempts: 0, held_seq: null },
  ]);
});

test("a death that could not be noted is noted when the database is back, and nothing is sent twice", async () => {
  const house = await relays();
  house.transport.answer = ({ id }) => (id === "a" ? "refused" : "published");
  house.database.failOnce("sagabox.outbox.dead");
  house.database.loseReply("sagabox.outbox.dead");
  await house.publish(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
  await house.relay().start();
  await house.drained();
  expect(house.transport.ids).toEqual(["b"]);
  expect(await house.rows(LETTER)).toMatchObject([{ message_id: "a" }]);
});
