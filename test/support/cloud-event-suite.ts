import type { CloudEventV1 } from "cloudevents";
import { expect, onTestFinished, test } from "vitest";
import type { Message } from "../../src/message/index.ts";
import {
  fromWire,
  type DeadLetterNote,
  type Delivery,
  type MessageFormat,
} from "../../src/transport/index.ts";
import type { Transport } from "../../src/transport/index.ts";
import { aMessage } from "./messages.ts";

/** The messages at the broker, as a client without sagabox sees them. */
export interface RawCopy {
  readonly body: Uint8Array;
  readonly headers: Readonly<Record<string, string>>;
  readonly contentType?: string;
}

export interface CloudEventBroker {
  /** Stands before the attributes in binary mode. */
  readonly prefix: string;
  /** Another process at the same broker. */
  readonly transport: (format: MessageFormat) => Transport;
  /** What a program does that has only the broker's own client. */
  readonly putForeign: (copy: RawCopy) => Promise<void>;
  readonly deadLetters: () => Promise<readonly RawCopy[]>;
}

export interface SdkReader extends Pick<CloudEventBroker, "transport"> {
  /** The messages in the topic, as the CloudEvents SDK reads them. */
  readonly readBySdk: () => Promise<readonly CloudEventV1<unknown>[]>;
}

export const cloudEventTopic = "events.order.placed";

const note: DeadLetterNote = {
  error_type: "CardClosed",
  error_message: "The card is closed – für immer.",
  stack_trace: "CardClosed: …\n  at pay",
  retry_count: "1",
  failed_at: "2026-01-02T03:04:05.678Z",
  source_topic: cloudEventTopic,
  consumer_group: "books",
  original_timestamp: "2026-01-02T03:04:05.678901Z",
};

const foreign = {
  specversion: "1.0",
  source: "https://else.example/a",
  type: "order.placed",
  subject: "Größe 7",
};

/** Three formats in one fleet and strangers beside it: all is read, tried again, and buried as what it was. */
export function cloudEventSuite(broker: () => CloudEventBroker): void {
  test("C2: a fleet that writes in three formats, and strangers, are understood, retried and buried", async () => {
    const { prefix, transport, putForeign, deadLetters } = broker();
    const reader = transport("cloudevents-binary");
    const first: Delivery[] = [];
    const second: Delivery[] = [];
    const consumption = await subscribeTo(reader, (delivery) => {
      (delivery.attempt === 1 ? first : second).push(delivery);
      if (delivery.attempt === 1)
        void delivery.retry({ delayMs: 50, countsAsAttempt: true, error: "once more" });
    });
    const messages: Record<MessageFormat, Message> = {
      sagabox: theMessage("own"),
      "cloudevents-structured": theMessage("structured"),
      "cloudevents-binary": theMessage("binary"),
    };
    for (const [format, message] of Object.entries(messages)) {
      const producer = transport(format as MessageFormat);
      await producer.open();
      const [outcome] = await producer.publish([message], { signal: AbortSignal.timeout(20_000) });
      expect(outcome).toEqual({ kind: "published" });
    }
    const attributes = Object.entries({ ...foreign, id: "b" });
    await putForeign({
      body: Buffer.from('{"n":12345678901234567890}'),
      headers: Object.fromEntries(
        attributes.map(([name, value]) => [`${prefix}${name}`, encodeAttribute(prefix, value)]),
      ),
      contentType: "application/json",
    });
    await putForeign({
      body: Buffer.from(JSON.stringify({ ...foreign, id: "s", data: null })),
      headers: {},
      contentType: "application/cloudevents+json",
    });
    const wanted = [
      ...Object.values(messages).map(({ id }) => id),
      `${foreign.source} b`,
      `${foreign.source} s`,
    ];
    await expect.poll(() => ids(second), { timeout: 30_000 }).toEqual(wanted.toSorted());
    expect(ids(first)).toEqual(wanted.toSorted());
    for (const { message, flaw } of [...first, ...second]) {
      expect(flaw).toBeUndefined();
      const own = Object.values(messages).find(({ id }) => id === message.id);
      if (own !== undefined) expect(message).toEqual(own);
      else
        expect(message).toMatchObject({
          topic: cloudEventTopic,
          type: "order.placed",
          aggregateId: "Größe 7",
        });
    }
    expect(second.map(({ message }) => message.data).toSorted()).toContain('{"n":12345678901234567890}');
    for (const delivery of second) await delivery.deadLetter?.(note);
    const gone = theMessage("gone already");
    await consumption.deadLetter?.(gone, note);
    await expect.poll(async () => (await deadLetters()).length, { timeout: 20_000 }).toBe(6);
    const letters = await deadLetters();
    expect(letters.map(({ headers }) => headers["error_type"])).toEqual(letters.map(() => "CardClosed"));
    const read = letters.map((copy) => fromWire({ ...copy, topic: cloudEventTopic, key: null }));
    const before = [...first.map(({ message }) => message), gone];
    const found = (id: string) => read.find(({ message }) => message.id === id)?.message;
    for (const message of before)
      expect(found(message.id)).toEqual({ ...message, writtenAt: found(message.id)?.writtenAt });
    const marks = letters.filter(({ headers }) => headers[`${prefix}specversion`] === "1.0");
    expect(marks).toHaveLength(3); // the binary one, the foreign binary one, and the one written by this transport
  });
}

/** The bytes at the broker are read by a foreign parser. */
export function cloudEventSdkSuite(broker: () => SdkReader): void {
  test("C2: the CloudEvents SDK reads what lies at the broker, in both formats", async () => {
    const { transport, readBySdk } = broker();
    for (const id of ["structured", "binary"] as const) {
      const producer = transport(`cloudevents-${id}`);
      await producer.open();
      const signal = AbortSignal.timeout(20_000);
      const message = aMessage({ id, key: "k-1", data: '{"note":"Grüße","n":7}' });
      expect(await producer.publish([message], { signal })).toEqual([{ kind: "published" }]);
    }
    await expect.poll(async () => (await readBySdk()).length, { timeout: 20_000 }).toBe(2);
    const read = await readBySdk();
    const { type, source } = aMessage();
    expect(read.toSorted((a, b) => (a.id < b.id ? -1 : 1))).toMatchObject(
      ["binary", "structured"].map((id) => ({
        specversion: "1.0",
        id,
        type,
        source: expect.stringContaining(source) as string,
        datacontenttype: "application/json",
        partitionkey: "k-1",
        data: { note: "Grüße", n: 7 },
      })),
    );
  });
}

function theMessage(id: string): Message {
  const headers = { "x-tenant": "Straße 7 \t%", "sagabox-claim": "postgres 1", "sagabox-sealed": "/name" };
  return aMessage({
    id,
    key: `Schlüssel ${id}`,
    data: '{"n":1.10}',
    headers,
    target: "books",
    sagaId: "s-1",
  });
}

async function subscribeTo(transport: Transport, receive: (delivery: Delivery) => void) {
  const consumption = await transport.subscribe(
    {
      group: "books",
      service: "shop",
      worker: "w",
      prefetch: 10,
      ordered: true,
      topics: [{ topic: cloudEventTopic, kind: "event", from: "beginning" }],
    },
    receive,
  );
  onTestFinished(() => consumption.close());
  return consumption;
}

const ids = (deliveries: readonly Delivery[]): string[] =>
  deliveries.map(({ message }) => message.id).toSorted();

// Only the binding of NATS has its values in ASCII.
const encodeAttribute = (prefix: string, value: string): string =>
  prefix === "ce-" ? encodeURI(value) : value;
