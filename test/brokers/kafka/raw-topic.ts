import { onTestFinished } from "vitest";
import type { IncomingRecord } from "../../../src/transports/kafka/driver.ts";
import { kafkaSettings } from "../../../src/transports/kafka/options.ts";
import { encodeRecord } from "../../../src/transports/kafka/record-buffer.ts";
import { WireDriver } from "../../../src/transports/kafka/wire-driver.ts";

/** A topic as a client without sagabox sees it. */
export class RawTopic {
  readonly #name: string;
  readonly #driver: WireDriver;

  /** `url`: host:port of one broker, or of several, separated by commas. */
  constructor(url: string, name: string) {
    this.#name = name;
    this.#driver = new WireDriver(kafkaSettings({ brokers: url.split(",") }));
    onTestFinished(() => this.#driver.close());
  }

  async read(): Promise<IncomingRecord[]> {
    const { topics } = await this.#driver.describe([this.#name]);
    const [topic] = topics;
    if (topic === undefined || topic.code !== 0) return [];
    const records: IncomingRecord[] = [];
    for (const [partition, { leader }] of topic.partitions.entries()) {
      const wanted = { topicId: topic.id, partition, offset: 0, maxBytes: 1_000_000 };
      const request = { waitMs: 50, maxBytes: 1_000_000, partitions: [wanted] };
      for (const found of await this.#driver.fetch("raw", leader, request)) records.push(...found.records);
    }
    return records;
  }

  async write(
    value: Buffer,
    headers: readonly (readonly [string, Buffer])[] = [],
    key?: string,
  ): Promise<void> {
    const { topics } = await this.#driver.describe([this.#name]);
    await this.#driver.produce(topics[0]?.partitions[0]?.leader ?? -1, {
      identity: await this.#driver.newIdentity(),
      timeoutMs: 5_000,
      compression: "none",
      batches: [
        {
          topic: this.#name,
          partition: 0,
          sequence: 0,
          records: [encodeRecord({ key, value, headers: headers.flat() }, 1_700_000_000_000)],
        },
      ],
    });
  }
}

export function readHeaders({ headers }: IncomingRecord): Record<string, string> {
  return Object.fromEntries(headers.map(([name, value]) => [name.toString(), value.toString()]));
}
