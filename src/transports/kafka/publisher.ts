import { SagaboxError, toError } from "../../errors/index.ts";
import type { Message } from "../../message/index.ts";
import { systemClock } from "../../runtime/index.ts";
import {
  cloudEventBindings,
  type PublishOptions,
  type PublishOutcome,
  toWireParts,
  type WireForm,
} from "../../transport/index.ts";
import { describeConnectionError } from "./connections.ts";
import type { KafkaDriver, OutgoingRecord, TopicView } from "./driver.ts";
import type { KafkaSettings } from "./options.ts";
import type { OutgoingMessage } from "./partition-queue.ts";
import { RecordBuffer, type RecordContents } from "./record-buffer.ts";
import { Sender, unknownOutcome, unreachableOutcome } from "./sender.ts";
import type { TopicDirectory, TopicPurpose } from "./topic-directory.ts";
import type { Topology } from "./topology.ts";

/** What a record takes beside what it holds: its place in a batch, and the batch around it. */
const RECORD_OVERHEAD = 100;
const ABORTED_TEXT = "given up before it was sent";
const BEHIND_REFUSED_TEXT = "an earlier message for the same partition was refused";

interface OutgoingContents extends RecordContents {
  readonly topic: string;
}

/** Messages to partitions, and an outcome for each. */
export class Publisher {
  readonly #directory: TopicDirectory;
  readonly #settings: KafkaSettings;
  readonly #topology: Topology;
  readonly #form: WireForm;
  readonly #sender: Sender;
  readonly #layouts = new Map<string, TopicLayout>();
  readonly #buffer = { bytes: 0 };
  /** What a record took in the last call: so much is asked for at once for the next one. */
  #usualBytes = 1_024;

  constructor(driver: KafkaDriver, directory: TopicDirectory, settings: KafkaSettings, topology: Topology) {
    this.#directory = directory;
    this.#settings = settings;
    this.#topology = topology;
    this.#form = { format: settings.format, binding: cloudEventBindings.kafka };
    this.#sender = new Sender(driver, directory, settings);
  }

  async publish(batch: readonly Message[], options: PublishOptions): Promise<readonly PublishOutcome[]> {
    const parcels = batch.map((message) => this.#encode(message));
    return this.#publishAll(parcels, "messages", options);
  }

  /** One copy for a topic of our own: a retry or a dead letter. */
  async publishRaw(
    parcel: OutgoingContents,
    purpose: TopicPurpose,
    signal: AbortSignal,
  ): Promise<PublishOutcome> {
    const [outcome] = await this.#publishAll([parcel], purpose, { signal });
    return outcome ?? unknownOutcome("no outcome");
  }

  close(): void {
    this.#sender.close();
  }

  async #publishAll(
    parcels: readonly OutgoingContents[],
    purpose: TopicPurpose,
    { signal, gathered }: PublishOptions,
  ): Promise<readonly PublishOutcome[]> {
    const topics = await this.#ensureTopics(new Set(parcels.map(({ topic }) => topic)), purpose, signal);
    const { length } = parcels;
    const round = new PublishCall(length, systemClock.wallMs(), this.#buffer, length * this.#usualBytes);
    for (const [index, parcel] of parcels.entries()) {
      const topic = topics.get(parcel.topic);
      if (topic === undefined || topic instanceof Error || signal.aborted)
        round.setOutcome(
          index,
          unreachableOutcome(topic instanceof Error ? describeConnectionError(topic) : ABORTED_TEXT),
        );
      else this.#route(parcel, index, topic, round);
    }
    if (length > 0) this.#usualBytes = estimateBytes(round.room.end / length);
    this.#sender.flushOrLinger(gathered);
    const giveUp = (): void => {
      for (const outgoing of round.outgoing)
        outgoing.settle(outgoing.taken ? unknownOutcome("given up") : unreachableOutcome(ABORTED_TEXT));
    };
    signal.addEventListener("abort", giveUp, { once: true });
    const outcomes = await round.ended;
    signal.removeEventListener("abort", giveUp);
    return outcomes;
  }

  // Nothing may wait longer than its sender does, so the look at the topics is left behind when the sender gives up.
  async #ensureTopics(
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

  #route(parcel: OutgoingContents, index: number, topic: TopicView, round: PublishCall): void {
    const { room } = round;
    const layout = this.#findLayout(topic);
    const start = room.end;
    room.write(parcel);
    const partition =
      parcel.key === undefined
        ? layout.next++ % layout.partitions
        : partitionFor(room.bytes, layout.partitions, room.keyStart, room.keyEnd);
    const line = round.stopped.size > 0 ? partitionKey(parcel, partition) : "";
    const bytes = RECORD_OVERHEAD + room.end - start;
    const flaw = round.stopped.has(line) ? unreachableOutcome(BEHIND_REFUSED_TEXT) : this.#checkSize(bytes);
    if (flaw === undefined)
      return this.#sender.add(parcel.topic, partition, round.take(index, start, bytes, layout));
    room.end = start;
    round.stopped.add(partitionKey(parcel, partition));
    round.setOutcome(index, flaw);
  }

  #checkSize(bytes: number): PublishOutcome | undefined {
    const { topics, bufferBytes } = this.#settings;
    // Compression may make it fit; what is far too large is not even sent.
    if (bytes > topics.maxBytes * 16 || bytes > bufferBytes)
      return { kind: "refused", error: tooLarge(bytes, topics.maxBytes) };
    if (this.#buffer.bytes + bytes > bufferBytes) return unreachableOutcome("too much is waiting to be sent");
    return undefined;
  }

  // P-15: a key moves to its new partition only when nothing of the topic is on its way to an old one.
  #findLayout({ name, partitions }: TopicView): TopicLayout {
    const known = this.#layouts.get(name);
    if (known === undefined) {
      const layout = { partitions: partitions.length, open: 0, next: 0 };
      this.#layouts.set(name, layout);
      return layout;
    }
    if (known.open === 0) known.partitions = partitions.length;
    return known;
  }

  #encode(message: Message): OutgoingContents {
    const { text, headers, common } = toWireParts(message, this.#form);
    const topic = this.#topology.topicName(message.topic);
    return { topic, key: message.key ?? undefined, value: text, headers, common };
  }
}

const partitionKey = ({ topic }: OutgoingContents, partition: number): string => `${topic}/${partition}`;

// A little more, since the next ones may be a little larger; never much before it is needed.
function estimateBytes(lastBytes: number): number {
  return Math.ceil(Math.min(lastBytes, 16_384) * 1.06) + 16;
}

function tooLarge(bytes: number, maxBytes: number): SagaboxError {
  return new SagaboxError(
    "PAYLOAD_TOO_LARGE",
    `The message has ${bytes} bytes with everything around it; topics take ${maxBytes}.`,
  );
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

const SEED = 0x9747b28c;
const FACTOR = 0x5bd1e995;

/** The hash that Kafka's own Java producer uses by default, as a signed 32-bit integer. */
export function murmur2(bytes: Uint8Array, start = 0, end = bytes.length): number {
  const rest = (end - start) & 3;
  const words = end - rest;
  let hash = SEED ^ (end - start);
  for (let at = start; at < words; at += 4) {
    const word =
      byteAt(bytes, at) |
      (byteAt(bytes, at + 1) << 8) |
      (byteAt(bytes, at + 2) << 16) |
      (byteAt(bytes, at + 3) << 24);
    hash = Math.imul(hash, FACTOR) ^ mix(word);
  }
  if (rest >= 3) hash ^= byteAt(bytes, words + 2) << 16;
  if (rest >= 2) hash ^= byteAt(bytes, words + 1) << 8;
  if (rest >= 1) hash = Math.imul(hash ^ byteAt(bytes, words), FACTOR);
  hash = Math.imul(hash ^ (hash >>> 13), FACTOR);
  return hash ^ (hash >>> 15);
}

/** Where the Java producer would put this key, so that producers in other languages agree with us. */
export function partitionFor(bytes: Uint8Array, partitions: number, start?: number, end?: number): number {
  return (murmur2(bytes, start, end) & 0x7fffffff) % partitions;
}

function mix(word: number): number {
  const mixed = Math.imul(word, FACTOR);
  return Math.imul(mixed ^ (mixed >>> 24), FACTOR);
}

function byteAt(bytes: Uint8Array, at: number): number {
  return bytes[at] ?? 0;
}

/** How a topic is laid out for the messages that are on their way to it. */
interface TopicLayout {
  partitions: number;
  open: number;
  next: number;
}

/** One call of publish: what it sends, and what became of each. */
class PublishCall {
  readonly timestampMs: number;
  /** Partitions that take no more of it, since an earlier message was refused. */
  readonly stopped = new Set<string>();
  readonly outgoing: OutgoingMessage[] = [];
  /** When each has an outcome. */
  readonly ended: Promise<readonly PublishOutcome[]>;
  /** What its messages hold. It lasts as long as one of them is on its way. */
  readonly room: RecordBuffer;
  readonly #outcomes: PublishOutcome[];
  readonly #buffer: { bytes: number };
  #left: number;
  #resolve: (outcomes: readonly PublishOutcome[]) => void = () => undefined;

  constructor(count: number, nowMs: number, buffer: { bytes: number }, expectedBytes: number) {
    this.timestampMs = Math.floor(nowMs);
    this.room = new RecordBuffer(expectedBytes);
    this.#outcomes = Array.from({ length: count });
    this.#left = count;
    this.#buffer = buffer;
    this.ended = new Promise((resolve) => (this.#resolve = resolve));
    if (count === 0) this.#resolve([]);
  }

  /** The message that was written last goes out. What it takes of the buffer and of its topic it gives back at its end. */
  take(index: number, start: number, bytes: number, layout: TopicLayout): OutgoingMessage {
    layout.open += 1;
    this.#buffer.bytes += bytes;
    const { room, timestampMs } = this;
    const outgoing = new PendingMessage(
      this,
      index,
      { room, start, end: room.end, timestampMs },
      bytes,
      layout,
    );
    this.outgoing.push(outgoing);
    return outgoing;
  }

  releaseBytes(bytes: number): void {
    this.#buffer.bytes -= bytes;
  }

  setOutcome(index: number, outcome: PublishOutcome): void {
    this.#outcomes[index] = outcome;
    this.#left -= 1;
    if (this.#left === 0) this.#resolve(this.#outcomes);
  }
}

class PendingMessage implements OutgoingMessage {
  readonly record: OutgoingRecord;
  readonly bytes: number;
  settled = false;
  taken = false;
  readonly #round: PublishCall;
  readonly #index: number;
  readonly #layout: TopicLayout;

  constructor(round: PublishCall, index: number, record: OutgoingRecord, bytes: number, layout: TopicLayout) {
    this.#round = round;
    this.#index = index;
    this.record = record;
    this.bytes = bytes;
    this.#layout = layout;
  }

  settle(outcome: PublishOutcome): void {
    if (this.settled) return;
    this.settled = true;
    this.#layout.open -= 1;
    this.#round.releaseBytes(this.bytes);
    this.#round.setOutcome(this.#index, outcome);
  }
}
