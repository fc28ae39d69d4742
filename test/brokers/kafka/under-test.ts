import type { TransportUnderTest } from "../../../src/testing/index.ts";
import type { Transport } from "../../../src/transport/index.ts";
import { KafkaTransport } from "../../../src/transports/kafka/index.ts";
import { kafkaSettings } from "../../../src/transports/kafka/options.ts";
import { WireDriver } from "../../../src/transports/kafka/wire-driver.ts";
import { SilencedDriver } from "./drivers.ts";
import { readHeaders, RawTopic } from "./raw-topic.ts";

const settingsFor = (url: string): ReturnType<typeof kafkaSettings> =>
  kafkaSettings({ brokers: url.split(","), topics: { partitions: 4 }, warn: () => undefined });

/** Processes for the conformance suite. `url`: host:port of one broker, or of several, separated by commas. */
export async function underTest(url: string): Promise<TransportUnderTest> {
  const settings = settingsFor(url);
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
    putForeign: (topic: string, body: Uint8Array) => new RawTopic(url, topic).write(Buffer.from(body)),
    deadLetters: async (topic: string) => {
      const dead = await new RawTopic(url, `${topic}.dlq`).read();
      return dead.map((record) => ({ body: record.value, headers: readHeaders(record) }));
    },
    close: async () => {
      await Promise.all([...processes.keys()].map((transport) => transport.close()));
    },
  };
}

export const { capabilities } = new KafkaTransport(settingsFor("127.0.0.1:9"));
