import { expect, test } from "vitest";
import { ScriptedDriver } from "../../../test/brokers/kafka/drivers.ts";
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
  return { driver, transport, warnings, publishKinds };
}

const keyedMessage = (id: string, key = "k"): Message => aMessage({ id, key });
/** Reads the message id from the header, which follows the body and is preceded by its length. */
const readIds = ({ records }: ProduceBatch): string[] =>
  records.map(({ buffer, start, end }) => {
    const bytes = buffer.bytes.subarray(start, end);
    const at = bytes.lastIndexOf("message_id") + "message_id".length;
    return bytes.toString("utf8", at + 1, at + 1 + (bytes[at] ?? 0) / 2);
  });

test("B2: messages of one call share a batch, with one producer identity and increasing sequences", async () => {
  const { driver, publishKinds } = createHarness();
  await publishKinds(keyedMessage("1"), keyedMessage("2"), keyedMessage("3"));
  await publishKinds(keyedMessage("4"));
  expect(driver.produced.map(({ batch }) => [batch.sequence, readIds(batch)])).toEqual([
    [0, ["1", "2", "3"]],
    [3, ["4"]],
  ]);
  expect(new Set(driver.produced.map(({ identity }) => identity.id)).size).toBe(1);
});

test("B2: a small batch lingers for more messages unless the caller has already gathered them", async () => {
  const { driver, transport } = createHarness({ linger: 10_000 });
  const signal = new AbortController().signal;
  const waiting = transport.publish([keyedMessage("1")], { signal });
  await new Promise((resolve) => setImmediate(resolve));
  expect(driver.produced).toEqual([]);
  await transport.publish([keyedMessage("2")], { signal, gathered: true });
  await waiting;
  expect(driver.produced.map(({ batch }) => readIds(batch))).toEqual([["1", "2"]]);
});

test("B2: a batch is limited to batchBytes; a larger message is sent alone", async () => {
  const { driver, publishKinds } = createHarness({ batchBytes: 2_000 });
  const data = JSON.stringify({ text: "x".repeat(5_000) });
  await publishKinds(keyedMessage("1"), aMessage({ id: "large", key: "k", data }), keyedMessage("2"));
  expect(driver.produced.map(({ batch }) => readIds(batch))).toEqual([["1"], ["large"], ["2"]]);
});

test("B2: batchBytes counts compressed bytes; the estimate improves slowly and worsens at once", async () => {
  const { driver, publishKinds } = createHarness({ batchBytes: 4_000 });
  const data = JSON.stringify({ text: "x".repeat(1_000) });
  const findLargest = async (packedBytes: number): Promise<number> => {
    driver.packedBytes = packedBytes;
    driver.produced.length = 0;
    await publishKinds(...Array.from({ length: 100 }, (_, n) => aMessage({ id: `${n}`, key: "k", data })));
    return Math.max(...driver.produced.map(({ batch }) => batch.records.length));
  };
  expect(await findLargest(0)).toBe(2);
  const packed = await findLargest(100);
  expect(packed).toBeGreaterThan(10);
  expect(packed).toBeLessThanOrEqual(40);
  await publishKinds(keyedMessage("1"));
  driver.packedBytes = 1_700;
  await publishKinds(keyedMessage("2"));
  expect(await findLargest(1_700)).toBe(2);
});

test("B2: a batch that could exceed the topic's limit is not built, however well messages compress", async () => {
  const { driver, publishKinds } = createHarness({ batchBytes: 4_000, topics: { maxBytes: 20_000 } });
  driver.packedBytes = 1;
  const data = JSON.stringify({ text: "x".repeat(1_000) });
  await publishKinds(...Array.from({ length: 100 }, (_, n) => aMessage({ id: `${n}`, key: "k", data })));
  const largest = Math.max(...driver.produced.map(({ batch }) => batch.records.length));
  expect(largest).toBeGreaterThan(2);
  expect(largest).toBeLessThan(10);
});

test("P-09: one batch per partition and at most maxInFlight requests per broker are in flight", async () => {
  const { driver, publishKinds } = createHarness({ maxInFlight: 2 });
  driver.partitions = 20;
  const inFlight = new Map<number, number>();
  driver.answer = async ({ partition }) => {
    inFlight.set(partition, (inFlight.get(partition) ?? 0) + 1);
    expect(inFlight.get(partition)).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 2));
    inFlight.set(partition, 0);
    return codes.none;
  };
  const rounds = Array.from({ length: 10 }, (_, round) =>
    publishKinds(...Array.from({ length: 40 }, (_, n) => keyedMessage(`${round}-${n}`, `key-${n}`))),
  );
  expect(new Set((await Promise.all(rounds)).flat())).toEqual(new Set(["published"]));
  expect(driver.mostInFlight).toBeLessThanOrEqual(2);
});

test("P-09: an unanswered batch is sent again with its identity and sequence, so it is stored once", async () => {
  const { driver, publishKinds } = createHarness();
  let failures = 3;
  driver.answer = () => {
    if (failures-- > 0) throw new NoAnswerError("cut", true, undefined);
    return codes.duplicateSequence;
  };
  expect(await publishKinds(keyedMessage("1"))).toEqual(["published"]);
  expect(driver.produced.map(({ identity, batch }) => [identity.id, batch.sequence])).toEqual(
    Array(4).fill([1n, 0]),
  );
});

test("messages that cannot have left the process are unreachable at once", async () => {
  const { driver, publishKinds } = createHarness();
  driver.answer = () => {
    throw new NoAnswerError("no connection", false, undefined);
  };
  expect(await publishKinds(keyedMessage("1"), keyedMessage("2"))).toEqual(["unreachable", "unreachable"]);
  expect(driver.produced).toHaveLength(1);
});

test("P-02: a batch without any answer ends as unknown, and the next batch has a new identity", async () => {
  const { driver, publishKinds } = createHarness({ timeout: 200 });
  driver.answer = () => {
    throw new NoAnswerError("cut", true, undefined);
  };
  expect(await publishKinds(keyedMessage("1"))).toEqual(["unknown"]);
  driver.answer = () => codes.none;
  expect(await publishKinds(keyedMessage("2"))).toEqual(["published"]);
  expect(driver.produced.at(-1)).toMatchObject({ identity: { id: 2n }, batch: { sequence: 0 } });
});

test.each([codes.outOfOrderSequence, codes.unknownProducer, codes.invalidProducerEpoch])(
  "P-10: when the broker rejects our sequence (code %i), the batch is unknown and the identity is renewed",
  async (code) => {
    const { driver, publishKinds } = createHarness();
    driver.answer = () => code;
    expect(await publishKinds(keyedMessage("1"))).toEqual(["unknown"]);
    driver.answer = () => codes.none;
    expect(await publishKinds(keyedMessage("1"))).toEqual(["published"]);
    expect(driver.produced.map(({ identity }) => identity.id)).toEqual([1n, 2n]);
  },
);

test("P-17: a failing partition does not affect other partitions", async () => {
  const { driver, publishKinds } = createHarness();
  driver.answer = ({ partition }) => (partition === 0 ? codes.topicDenied : codes.none);
  const kinds = await publishKinds(...["a", "b", "c", "d", "e", "f"].map((key) => keyedMessage(key, key)));
  expect(new Set(kinds)).toEqual(new Set(["published", "unreachable"]));
});

test("P-17: after a leader change, the leader is looked up again and the batch is published", async () => {
  const { driver, publishKinds } = createHarness();
  const answers = [codes.notLeader, codes.leaderNotAvailable, codes.none];
  driver.answer = () => answers.shift() ?? codes.none;
  expect(await publishKinds(keyedMessage("1"))).toEqual(["published"]);
});

test.each([
  [codes.messageTooLarge, "refused"],
  [codes.recordListTooLarge, "refused"],
  [codes.invalidTimestamp, "rejected"],
  [codes.invalidRecord, "rejected"],
  [codes.topicDenied, "unreachable"],
])("code %i is %s", async (code, kind) => {
  const { driver, publishKinds } = createHarness();
  driver.answer = () => code;
  expect(await publishKinds(keyedMessage("1"))).toEqual([kind]);
});

test("P-12: of a refused batch only the invalid message is rejected, and later messages are not sent", async () => {
  const { driver, publishKinds } = createHarness();
  driver.answer = (batch) => (readIds(batch).includes("bad") ? codes.invalidRecord : codes.none);
  const kinds = await publishKinds(
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

test("an aborted publish returns at once: unknown for messages in flight, unreachable for the others", async () => {
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

test("topics are created with replicas and min.insync.replicas", async () => {
  const { driver, publishKinds } = createHarness({ topics: { retention: "7d" } });
  driver.exists = false;
  await publishKinds(keyedMessage("1"));
  expect(driver.created).toMatchObject([{ partitions: 12, replication: 3 }]);
  expect(driver.created[0]?.settings).toMatchObject({
    "min.insync.replicas": "2",
    "retention.ms": "604800000",
  });
});

test.each([
  [{ nodes: [1] }, "single broker"],
  [{ replicas: 1 }, "single replica"],
  [{ minInSync: "1" }, "min.insync.replicas=1"],
])(
  "P-08: a cluster that could lose a confirmed message is warned about once (%j)",
  async (cluster, warning) => {
    const { driver, publishKinds, warnings } = createHarness();
    Object.assign(driver, cluster);
    await publishKinds(keyedMessage("1"));
    await publishKinds(keyedMessage("2"));
    expect(warnings).toEqual([expect.stringContaining(warning)]);
  },
);
