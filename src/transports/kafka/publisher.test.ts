import { expect, test } from "vitest";
import { ScriptedDriver } from "../../../test/support/brokers/kafka/scripted-driver.ts";
import { aMessage } from "../../../test/support/messages.ts";
import type { Message } from "../../message/index.ts";
import { NoAnswerError, type ProduceBatch } from "./driver.ts";
import { codes } from "./kafka-codes.ts";
import { KafkaTransport } from "./kafka-transport.ts";
import { kafkaSettings, type KafkaOptions } from "./options.ts";

function createHarness(options: Partial<KafkaOptions> = {}) {
  const driver = new ScriptedDriver();
  const warnings: string[] = [];
  const settings = kafkaSettings({
    brokers: ["localhost:9092"],
    linger: 0,
    warn: (warning) => warnings.push(warning),
    ...options,
  });
  const transport = new KafkaTransport(settings, driver);
  const publishKinds = async (...batch: readonly Message[]): Promise<string[]> => {
    const outcomes = await transport.publish(batch, { signal: new AbortController().signal });
    return outcomes.map(({ kind }) => kind);
  };
  return { driver, transport, warnings, kindsOf: publishKinds };
}

const keyedMessage = (id: string, key = "k"): Message => aMessage({ id, key });
/** From the header, which stands behind the body and has its length before it. */
const readIds = ({ records }: ProduceBatch): string[] =>
  records.map(({ room, start, end }) => {
    const bytes = room.bytes.subarray(start, end);
    const at = bytes.lastIndexOf("message_id") + "message_id".length;
    return bytes.toString("utf8", at + 1, at + 1 + (bytes[at] ?? 0) / 2);
  });

test("B2: messages that come together travel together, with one identity and growing sequences", async () => {
  const { driver, kindsOf } = createHarness();
  await kindsOf(keyedMessage("1"), keyedMessage("2"), keyedMessage("3"));
  await kindsOf(keyedMessage("4"));
  expect(driver.produced.map(({ batch }) => [batch.sequence, readIds(batch)])).toEqual([
    [0, ["1", "2", "3"]],
    [3, ["4"]],
  ]);
  expect(new Set(driver.produced.map(({ identity }) => identity.id)).size).toBe(1);
});

test("B2: few messages wait for company, but not where their sender has gathered all there is", async () => {
  const { driver, transport } = createHarness({ linger: 10_000 });
  const signal = new AbortController().signal;
  const waiting = transport.publish([keyedMessage("1")], { signal });
  await new Promise((resolve) => setImmediate(resolve));
  expect(driver.produced).toEqual([]);
  await transport.publish([keyedMessage("2")], { signal, gathered: true });
  await waiting;
  expect(driver.produced.map(({ batch }) => readIds(batch))).toEqual([["1", "2"]]);
});

test("B2: a batch ends at its size; a larger message goes alone", async () => {
  const { driver, kindsOf } = createHarness({ batchBytes: 2_000 });
  const data = JSON.stringify({ text: "x".repeat(5_000) });
  await kindsOf(keyedMessage("1"), aMessage({ id: "large", key: "k", data }), keyedMessage("2"));
  expect(driver.produced.map(({ batch }) => readIds(batch))).toEqual([["1"], ["large"], ["2"]]);
});

test("B2: what a batch may hold is measured as it travels, compressed: better is believed slowly, worse at once", async () => {
  const { driver, kindsOf } = createHarness({ batchBytes: 4_000 });
  const data = JSON.stringify({ text: "x".repeat(1_000) });
  const findLargest = async (packedBytes: number): Promise<number> => {
    driver.packedBytes = packedBytes;
    driver.produced.length = 0;
    await kindsOf(...Array.from({ length: 100 }, (_, n) => aMessage({ id: `${n}`, key: "k", data })));
    return Math.max(...driver.produced.map(({ batch }) => batch.records.length));
  };
  expect(await findLargest(0)).toBe(2);
  const packed = await findLargest(100);
  expect(packed).toBeGreaterThan(10);
  expect(packed).toBeLessThanOrEqual(40);
  await kindsOf(keyedMessage("1"));
  driver.packedBytes = 1_700;
  await kindsOf(keyedMessage("2"));
  expect(await findLargest(1_700)).toBe(2);
});

test("B2: however well messages can be compressed, what could be too large for the topic is not put together", async () => {
  const { driver, kindsOf } = createHarness({ batchBytes: 4_000, topics: { maxBytes: 20_000 } });
  driver.packedBytes = 1;
  const data = JSON.stringify({ text: "x".repeat(1_000) });
  await kindsOf(...Array.from({ length: 100 }, (_, n) => aMessage({ id: `${n}`, key: "k", data })));
  const largest = Math.max(...driver.produced.map(({ batch }) => batch.records.length));
  expect(largest).toBeGreaterThan(2);
  expect(largest).toBeLessThan(10);
});

test("P-09: of a partition one batch is on its way, of a broker at most as many requests as allowed", async () => {
  const { driver, kindsOf } = createHarness({ maxInFlight: 2 });
  driver.partitions = 20;
  const flying = new Map<number, number>();
  driver.answer = async ({ partition }) => {
    flying.set(partition, (flying.get(partition) ?? 0) + 1);
    expect(flying.get(partition)).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 2));
    flying.set(partition, 0);
    return codes.none;
  };
  const rounds = Array.from({ length: 10 }, (_, round) =>
    kindsOf(...Array.from({ length: 40 }, (_, n) => keyedMessage(`${round}-${n}`, `key-${n}`))),
  );
  expect(new Set((await Promise.all(rounds)).flat())).toEqual(new Set(["published"]));
  expect(driver.mostInFlight).toBeLessThanOrEqual(2);
});

test("P-09: without an answer it asks again with the same identity and sequence, so it is stored once", async () => {
  const { driver, kindsOf } = createHarness();
  let failures = 3;
  driver.answer = () => {
    if (failures-- > 0) throw new NoAnswerError("cut", true, undefined);
    return codes.duplicateSequence;
  };
  expect(await kindsOf(keyedMessage("1"))).toEqual(["published"]);
  expect(driver.produced.map(({ identity, batch }) => [identity.id, batch.sequence])).toEqual(
    Array(4).fill([1n, 0]),
  );
});

test("nothing can have left this process: unreachable at once", async () => {
  const { driver, kindsOf } = createHarness();
  driver.answer = () => {
    throw new NoAnswerError("no connection", false, undefined);
  };
  expect(await kindsOf(keyedMessage("1"), keyedMessage("2"))).toEqual(["unreachable", "unreachable"]);
  expect(driver.produced).toHaveLength(1);
});

test("P-02: without any answer it is unknown in the end, and the next message comes with a new identity", async () => {
  const { driver, kindsOf } = createHarness({ timeout: 200 });
  driver.answer = () => {
    throw new NoAnswerError("cut", true, undefined);
  };
  expect(await kindsOf(keyedMessage("1"))).toEqual(["unknown"]);
  driver.answer = () => codes.none;
  expect(await kindsOf(keyedMessage("2"))).toEqual(["published"]);
  expect(driver.produced.at(-1)).toMatchObject({ identity: { id: 2n }, batch: { sequence: 0 } });
});

test.each([codes.outOfOrderSequence, codes.unknownProducer, codes.invalidProducerEpoch])(
  "P-10: when the broker does not know our sequence (code %i), the batch is unknown and we begin anew",
  async (code) => {
    const { driver, kindsOf } = createHarness();
    driver.answer = () => code;
    expect(await kindsOf(keyedMessage("1"))).toEqual(["unknown"]);
    driver.answer = () => codes.none;
    expect(await kindsOf(keyedMessage("1"))).toEqual(["published"]);
    expect(driver.produced.map(({ identity }) => identity.id)).toEqual([1n, 2n]);
  },
);

test("P-17: a partition that fails does not touch the others", async () => {
  const { driver, kindsOf } = createHarness();
  driver.answer = ({ partition }) => (partition === 0 ? codes.topicDenied : codes.none);
  const kinds = await kindsOf(...["a", "b", "c", "d", "e", "f"].map((key) => keyedMessage(key, key)));
  expect(new Set(kinds)).toEqual(new Set(["published", "unreachable"]));
});

test("P-17: when the leader moves, it looks again and goes on", async () => {
  const { driver, kindsOf } = createHarness();
  const answers = [codes.notLeader, codes.leaderNotAvailable, codes.none];
  driver.answer = () => answers.shift() ?? codes.none;
  expect(await kindsOf(keyedMessage("1"))).toEqual(["published"]);
});

test.each([
  [codes.messageTooLarge, "refused"],
  [codes.recordListTooLarge, "refused"],
  [codes.invalidTimestamp, "rejected"],
  [codes.invalidRecord, "rejected"],
  [codes.topicDenied, "unreachable"],
])("code %i is %s", async (code, kind) => {
  const { driver, kindsOf } = createHarness();
  driver.answer = () => code;
  expect(await kindsOf(keyedMessage("1"))).toEqual([kind]);
});

test("P-12: of a batch that was refused only the one to blame is, and what comes behind it waits", async () => {
  const { driver, kindsOf } = createHarness();
  driver.answer = (batch) => (readIds(batch).includes("bad") ? codes.invalidRecord : codes.none);
  const kinds = await kindsOf(
    keyedMessage("1"),
    keyedMessage("2"),
    keyedMessage("bad"),
    keyedMessage("3"),
    keyedMessage("4"),
  );
  expect(kinds).toEqual(["published", "published", "rejected", "unreachable", "unreachable"]);
  const sequences = driver.produced.map(({ batch }) => [batch.sequence, readIds(batch).join()]);
  expect(sequences).toEqual([
    [0, "1,2,bad,3,4"],
    [0, "1"],
    [1, "2"],
    [2, "bad"],
  ]);
});

test("a sender that gives up hears at once: unknown for what was sent, unreachable for what was not", async () => {
  const { driver, transport } = createHarness({ batchBytes: 1_000 });
  driver.answer = () => new Promise<never>(() => undefined);
  const sender = new AbortController();
  const data = JSON.stringify({ text: "x".repeat(900) });
  const batch = ["1", "2"].map((id) => aMessage({ id, key: "k", data }));
  const publishing = transport.publish(batch, { signal: sender.signal });
  await expect.poll(() => driver.produced.length).toBe(1);
  sender.abort();
  expect((await publishing).map(({ kind }) => kind)).toEqual(["unknown", "unreachable"]);
});

test("topics are made with copies and with a word on how many must have a message", async () => {
  const { driver, kindsOf } = createHarness({ topics: { retention: "7d" } });
  driver.exists = false;
  await kindsOf(keyedMessage("1"));
  expect(driver.created).toMatchObject([{ partitions: 12, replication: 3 }]);
  expect(driver.created[0]?.settings).toMatchObject({
    "min.insync.replicas": "2",
    "retention.ms": "604800000",
  });
});

test.each([
  [{ nodes: [1] }, "single broker"],
  [{ replicas: 1 }, "single copy"],
  [{ minInSync: "1" }, "min.insync.replicas=1"],
])("P-08: people are warned once where a confirmed message could be lost (%j)", async (cluster, warning) => {
  const { driver, kindsOf, warnings } = createHarness();
  Object.assign(driver, cluster);
  await kindsOf(keyedMessage("1"));
  await kindsOf(keyedMessage("2"));
  expect(warnings).toEqual([expect.stringContaining(warning)]);
});
