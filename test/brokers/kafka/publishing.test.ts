import { randomBytes } from "node:crypto";
import {
  createPartitionsV3,
  deleteTopicsV6,
  incrementalAlterConfigsV1,
  Connection,
} from "@platformatic/kafka";
import { describe, expect, onTestFinished, test } from "vitest";
import { aMessage } from "../../support/messages.ts";
import { ackAll, Member, missing, newPrefix, publish, sharedUrl, createTransport } from "./harness.ts";

// Incompressible, so that the broker sees its full size.
const text = (bytes: number): string =>
  JSON.stringify({ text: randomBytes(Math.ceil(bytes * 0.75)).toString("base64") });

async function admin(): Promise<Connection> {
  const connection = new Connection("test");
  const [host = "", port] = sharedUrl.split(":");
  await connection.connect(host, Number(port));
  onTestFinished(() => connection.close());
  return connection;
}

describe.skipIf(missing)("publishing to Kafka", () => {
  test("P-12: what is too large for the topic is refused, and what comes behind it on another partition is not", async () => {
    const transport = createTransport();
    const sizes = [0.9, 1.1, 16].map((mega) => Math.floor(mega * 1_000_000));
    const kinds: string[] = [];
    for (const bytes of sizes)
      kinds.push((await publish(transport, aMessage({ data: text(bytes) })))[0]?.kind ?? "");
    expect(kinds).toEqual(["published", "refused", "refused"]);
    const mixed = [aMessage(), aMessage({ data: text(1_200_000) }), aMessage()];
    expect((await publish(transport, ...mixed)).map(({ kind }) => kind)).toEqual([
      "published",
      "refused",
      "published",
    ]);
  });

  test("a refused message fails what comes behind it on its key, so that no message overtakes it", async () => {
    const transport = createTransport();
    const batch = [
      aMessage({ id: "1", key: "k" }),
      aMessage({ id: "2", key: "k", data: text(1_200_000) }),
      aMessage({ id: "3", key: "k" }),
    ];
    const outcomes = await publish(transport, ...batch);
    expect(outcomes.map(({ kind }) => kind)).toEqual(["published", "refused", "unreachable"]);
    expect((await publish(transport, aMessage({ id: "4", key: "k" })))[0]?.kind).toBe("published");
    const member = await Member.of(transport, { receive: ackAll });
    await member.got(2);
    expect(member.ids).toEqual(["1", "4"]);
  });

  test("P-12: small messages that are too large together go one by one", async () => {
    const prefix = newPrefix();
    const transport = createTransport({ prefix, topics: { partitions: 1 } });
    await publish(transport, aMessage());
    await limitTopic(`${prefix}events.order.placed`, 3_000);
    const batch = [
      aMessage({ id: "a", data: text(1_000) }),
      aMessage({ id: "b", data: text(1_000) }),
      aMessage({ id: "c", data: text(9_000) }),
    ];
    expect((await publish(transport, ...batch)).map(({ kind }) => kind)).toEqual([
      "published",
      "published",
      "refused",
    ]);
  });

  test("B2: headers and key travel as separate bytes with every compression", async () => {
    for (const compression of ["none", "gzip", "snappy", "lz4"] as const) {
      const transport = createTransport({ compression });
      const member = await Member.of(transport, { receive: ackAll });
      const message = aMessage({ key: "Schlüssel 😀", headers: { "x-note": "ä\tb" }, data: text(5_000) });
      await publish(
        transport,
        message,
        ...Array.from({ length: 50 }, () => aMessage({ key: "Schlüssel 😀" })),
      );
      const [first] = await member.got(51);
      expect(first?.message).toEqual(message);
    }
  });

  test("P-15: when a topic gets more partitions, people are warned and nothing is lost", async () => {
    const prefix = newPrefix();
    const warnings: string[] = [];
    const topics = { partitions: 2 };
    const transport = createTransport({ prefix, topics, warn: (warning) => warnings.push(warning) });
    const member = await Member.of(transport, { receive: ackAll, from: "now" });
    const createBatch = (name: string) =>
      Array.from({ length: 20 }, (_, n) => aMessage({ id: `${name}${n}`, key: `k${n}` }));
    await publish(transport, ...createBatch("a"));
    await member.got(20);
    const name = `${prefix}events.order.placed`;
    const assignments = Array.from({ length: 4 }, () => ({ brokerIds: [1] }));
    await createPartitionsV3.api.async(await admin(), [{ name, count: 6, assignments }], 5_000, false);
    const other = createTransport({ prefix, topics });
    await expect
      .poll(async () => (await publish(other, ...createBatch("b"))).every(({ kind }) => kind === "published"))
      .toBe(true);
    await member.until(() => createBatch("b").every(({ id }) => member.ids.includes(id)));
    expect(
      warnings.filter((warning) => warning.includes("now has 6 partitions, before 2")).length,
    ).toBeGreaterThan(0);
  });

  test("P-11: a topic that was deleted under our hands is made again, and no message is blamed", async () => {
    const prefix = newPrefix();
    const transport = createTransport({ prefix });
    await publish(transport, aMessage());
    const topic = { name: `${prefix}events.order.placed` };
    await deleteTopicsV6.api.async(await admin(), [topic], 5_000);
    const outcomes = await publish(transport, aMessage({ key: "k" }), aMessage());
    expect(outcomes.map(({ kind }) => kind)).toEqual(["published", "published"]);
  });

  test("P-11: a topic that is missing and may not be made is unreachable, and the reason says what to do", async () => {
    const transport = createTransport({ topics: { create: false } });
    const [outcome] = await publish(transport, aMessage());
    expect(outcome).toMatchObject({ kind: "unreachable" });
    expect(outcome).toHaveProperty(
      "error.message",
      expect.stringContaining("creating topics is switched off"),
    );
  });

  test("a topic reports how many messages wait for its slowest group", async () => {
    const transport = createTransport();
    const topic = "events.order.placed";
    expect(await transport.depths?.([topic])).toEqual(new Map());
    const quick = await Member.of(transport, { group: "quick", receive: ackAll });
    await Member.of(transport, { group: "slow", prefetch: 2 });
    await publish(transport, ...Array.from({ length: 7 }, () => aMessage()));
    await quick.got(7);
    expect(await transport.depths?.([topic])).toEqual(new Map([[topic, 7]]));
    await publish(transport, aMessage());
    expect(await transport.depths?.([topic])).toEqual(new Map([[topic, 8]]));
  });

  test("a group that is behind reports the age of its oldest message, also to a process without members", async () => {
    const prefix = newPrefix();
    const member = await Member.of(createTransport({ prefix }), { group: "away" });
    await member.consumption?.close();
    const transport = createTransport({ prefix });
    const topics = [{ topic: "events.order.placed", kind: "event" }] as const;
    const planned = { service: "shop", group: "away", ordered: true, topics };
    const lags = () => transport.lags?.([planned]);
    expect(await lags()).toEqual([
      { group: "away", topic: "events.order.placed", waiting: 0, oldestAgeSeconds: 0 },
    ]);
    await publish(transport, aMessage(), aMessage());
    const hasAged = async (): Promise<boolean> => {
      const [lag] = (await lags()) ?? [];
      return lag?.waiting === 2 && typeof lag.oldestAgeSeconds === "number" && lag.oldestAgeSeconds >= 0.3;
    };
    await expect.poll(hasAged, { timeout: 20_000 }).toBe(true);
  });

  test("the buffer has an end: what does not fit is unreachable instead of filling the memory", async () => {
    const transport = createTransport({ bufferBytes: 65_536, linger: 200 });
    await publish(transport, aMessage());
    const batch = Array.from({ length: 10 }, () => aMessage({ data: text(10_000) }));
    const kinds = (await publish(transport, ...batch)).map(({ kind }) => kind);
    expect(new Set(kinds)).toEqual(new Set(["published", "unreachable"]));
  });
});

async function limitTopic(name: string, bytes: number): Promise<void> {
  await incrementalAlterConfigsV1.api.async(
    await admin(),
    [
      {
        resourceType: 2,
        resourceName: name,
        configs: [{ name: "max.message.bytes", configOperation: 0, value: String(bytes) }],
      },
    ],
    false,
  );
}
