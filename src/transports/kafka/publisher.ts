import { SagaboxError } from "../../errors/index.ts";
import type { Message } from "../../message/index.ts";
import { systemClock } from "../../runtime/index.ts";
import {
  cloudEventBindings,
  toWire,
  type PublishOptions,
  type PublishOutcome,
} from "../../transport/index.ts";
import { messageOf } from "./connections.ts";
import type { KafkaDriver, TopicView } from "./driver.ts";
import type { KafkaSettings } from "./options.ts";
import type { Outgoing } from "./partition-line.ts";
import { partitionOf } from "./partitioner.ts";
import { headerBytes } from "./record-headers.ts";
import { Sender, unknown, unreachable } from "./sender.ts";
import type { TopicDirectory, TopicPurpose } from "./topic-directory.ts";
import type { Topology } from "./topology.ts";

/** Bytes of a record that are neither key, value nor headers: lengths, attributes, and the batch around it. */
const RECORD_OVERHEAD = 100;
const NOT_SENT = "given up before it was sent";

interface Parcel {
  readonly topic: string;
  readonly key: Buffer | undefined;
  readonly value: Buffer;
  readonly headers: Map<Buffer, Buffer>;
}

/** One call of publish. */
interface Round {
  readonly timestamp: bigint;
  /** Partitions that take no more of it, since an earlier message was refused. */
  readonly stopped: Set<string>;
  readonly open: Set<Outgoing>;
}

interface Layout {
  partitions: number;
  open: number;
  next: number;
}

/** What a message needs to be sent, beside itself. */
interface Way {
  readonly partition: number;
  readonly bytes: number;
  readonly layout: Layout;
  readonly round: Round;
}

/** Messages to partitions, and an outcome for each. */
export class Publisher {
  readonly #directory: TopicDirectory;
  readonly #settings: KafkaSettings;
  readonly #topology: Topology;
  readonly #sender: Sender;
  readonly #layouts = new Map<string, Layout>();
  #buffered = 0;

  constructor(driver: KafkaDriver, directory: TopicDirectory, settings: KafkaSettings, topology: Topology) {
    this.#directory = directory;
    this.#settings = settings;
    this.#topology = topology;
    this.#sender = new Sender(driver, directory, settings);
  }

  async publish(batch: readonly Message[], { signal }: PublishOptions): Promise<readonly PublishOutcome[]> {
    const parcels = batch.map((message) => this.#parcel(message));
    return this.#putAll(parcels, "messages", signal);
  }

  /** One copy for a topic of our own: a retry or a dead letter. */
  async put(parcel: Parcel, purpose: TopicPurpose, signal: AbortSignal): Promise<PublishOutcome> {
    const [outcome] = await this.#putAll([parcel], purpose, signal);
    return outcome ?? unknown("no outcome");
  }

  close(): void {
    this.#sender.close();
  }

  async #putAll(
    parcels: readonly Parcel[],
    purpose: TopicPurpose,
    signal: AbortSignal,
  ): Promise<readonly PublishOutcome[]> {
    const topics = await this.#topics(new Set(parcels.map(({ topic }) => topic)), purpose, signal);
    const timestamp = BigInt(Math.floor(systemClock.wallMs()));
    const round: Round = { timestamp, stopped: new Set(), open: new Set() };
    const outcomes = parcels.map((parcel) => {
      const topic = topics.get(parcel.topic);
      if (topic === undefined || topic instanceof Error || signal.aborted)
        return Promise.resolve(unreachable(topic instanceof Error ? messageOf(topic) : NOT_SENT));
      return this.#route(parcel, topic, round);
    });
    const giveUp = (): void => {
      for (const outgoing of round.open)
        outgoing.settle(outgoing.taken ? unknown("given up") : unreachable(NOT_SENT));
    };
    signal.addEventListener("abort", giveUp, { once: true });
    const settled = await Promise.all(outcomes);
    signal.removeEventListener("abort", giveUp);
    return settled;
  }

  // Nothing may wait longer than its sender does, so the look at the topics is left behind when the sender gives up.
  async #topics(
    names: ReadonlySet<string>,
    purpose: TopicPurpose,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, TopicView | Error>> {
    const found = new Map<string, TopicView | Error>();
    const looks = [...names].map(async (name) => {
      const view = await this.#directory.ensure(name, purpose).catch((error: unknown) => toError(error));
      found.set(name, view);
    });
    await untilAborted(Promise.all(looks), signal);
    return found;
  }

  #route(parcel: Parcel, topic: TopicView, round: Round): Promise<PublishOutcome> {
    const bytes = sizeOf(parcel);
    const layout = this.#layout(topic);
    const { key } = parcel;
    const partition =
      key === undefined ? layout.next++ % layout.partitions : partitionOf(key, layout.partitions);
    if (round.stopped.size > 0 && round.stopped.has(lineOf(parcel, partition)))
      return Promise.resolve(unreachable("an earlier message for the same partition was refused"));
    const flaw = this.#flaw(bytes);
    if (flaw === undefined) return this.#send(parcel, { partition, bytes, layout, round });
    round.stopped.add(lineOf(parcel, partition));
    return Promise.resolve(flaw);
  }

  #flaw(bytes: number): PublishOutcome | undefined {
    const { topics, bufferBytes } = this.#settings;
    // Compression may make it fit; what is far too large is not even sent.
    if (bytes > topics.maxBytes * 16 || bytes > bufferBytes)
      return { kind: "refused", error: tooLarge(bytes, topics.maxBytes) };
    if (this.#buffered + bytes > bufferBytes) return unreachable("too much is waiting to be sent");
    return undefined;
  }

  #send(parcel: Parcel, { partition, bytes, layout, round }: Way): Promise<PublishOutcome> {
    return new Promise((resolve) => {
      layout.open += 1;
      this.#buffered += bytes;
      const { key, value, headers } = parcel;
      const outgoing: Outgoing = {
        record: { key, value, headers, timestamp: round.timestamp },
        bytes,
        settled: false,
        taken: false,
        settle: (outcome) => {
          if (outgoing.settled) return;
          outgoing.settled = true;
          round.open.delete(outgoing);
          layout.open -= 1;
          this.#buffered -= bytes;
          resolve(outcome);
        },
      };
      round.open.add(outgoing);
      this.#sender.add(parcel.topic, partition, outgoing);
    });
  }

  // P-15: a key moves to its new partition only when nothing of the topic is on its way to an old one.
  #layout({ name, partitions }: TopicView): Layout {
    const known = this.#layouts.get(name);
    if (known === undefined) {
      const layout = { partitions: partitions.length, open: 0, next: 0 };
      this.#layouts.set(name, layout);
      return layout;
    }
    if (known.open === 0) known.partitions = partitions.length;
    return known;
  }

  #parcel(message: Message): Parcel {
    const { body, headers } = toWire(message, {
      format: this.#settings.format,
      binding: cloudEventBindings.kafka,
    });
    return {
      topic: this.#topology.topic(message.topic),
      key: message.key === null ? undefined : Buffer.from(message.key),
      value: body,
      headers: headerBytes(headers),
    };
  }
}

const lineOf = ({ topic }: Parcel, partition: number): string => `${topic}/${partition}`;

function sizeOf({ key, value, headers }: Parcel): number {
  let bytes = RECORD_OVERHEAD + value.length + (key?.length ?? 0);
  for (const [name, content] of headers) bytes += name.length + content.length + 4;
  return bytes;
}

function tooLarge(bytes: number, maxBytes: number): SagaboxError {
  return new SagaboxError(
    "PAYLOAD_TOO_LARGE",
    `The message has ${bytes} bytes with everything around it; topics take ${maxBytes}.`,
  );
}

function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

function untilAborted(work: Promise<unknown>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = (): void => {
      signal.removeEventListener("abort", end);
      resolve();
    };
    signal.addEventListener("abort", end, { once: true });
    work.then(end, end);
  });
}
