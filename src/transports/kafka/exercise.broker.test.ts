import { expect, inject, test } from "vitest";
import { caseTitle } from "../../../test/support/case-title.ts";
import { SilencedDriver } from "../../../test/support/brokers/kafka/silenced-driver.ts";
import { headersOf, RawTopic } from "../../../test/brokers/kafka/raw-topic.ts";
import { exerciseTransport } from "../../testing/index.ts";
import type { Transport } from "../../transport/index.ts";
import { KafkaTransport } from "./index.ts";
import { kafkaSettings } from "./options.ts";
import { WireDriver } from "./wire-driver.ts";

const broker = inject("kafka");

const settings = kafkaSettings({
  brokers: ["url" in broker ? broker.url : "127.0.0.1:9"],
  topics: { partitions: 4 },
  warn: () => undefined,
});

async function make() {
  const processes = new Map<Transport, SilencedDriver>();
  const another = async () => {
    const driver = new SilencedDriver(new WireDriver(settings));
    const transport = new KafkaTransport(settings, driver);
    processes.set(transport, driver);
    return transport;
  };
  return {
    transport: await another(),
    another,
    abandon: (transport: Transport) => processes.get(transport)?.silence(),
    cutConnections: () => {
      for (const driver of processes.values()) driver.cut();
    },
    putForeign: (topic: string, body: Uint8Array) => new RawTopic(topic).write(Buffer.from(body)),
    deadLetters: async (topic: string) => {
      const dead = await new RawTopic(`${topic}.dlq`).read();
      return dead.map((record) => ({ body: record.value, headers: headersOf(record) }));
    },
    close: async () => {
      await Promise.all([...processes.keys()].map((transport) => transport.close()));
    },
  };
}

const { capabilities } = new KafkaTransport(settings);
const skipped = exerciseTransport(
  {
    test: (name, run) =>
      test(caseTitle(name, "B2"), async (context) => {
        if ("missing" in broker) return context.skip(broker.missing);
        return run();
      }),
  },
  make,
  { capabilities, offers: ["abandon", "cutConnections", "putForeign", "deadLetters"] },
);

test("B1, B2: all that is left out is what Kafka never does: to reject what nobody reads, and ordered retries", () => {
  expect([...new Set(skipped.map(({ reason }) => reason))]).toEqual([
    "it does not claim rejectsUnrouted",
    "it does not claim ordersRetries",
  ]);
});
