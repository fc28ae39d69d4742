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

/** Bytes counted for a record in addition to its contents: its own fields and its share of the batch header. */
const RECORD_OVERHEAD = 100;
const ABORTED_TEXT = "the caller gave up before the message was sent";
const BEHIND_REFUSED_TEXT = "an earlier message for the same partition was refused";

interface OutgoingContents extends RecordContents {
  readonly topic: string;
}

/** Assigns messages to partitions, sends them, and returns an outcome for each. */
export class Publisher {
  readonly #directory: TopicDirectory;
  readonly #settings: KafkaSettings;
  readonly #topology: Topology;
  readonly #form: WireForm;
  readonly #sender: Sender;
  readonly #layouts = new Map<string, TopicLayout>();
  readonly #usage = { bytes: 0 };
  /** Average record size of the last call. The next call allocates its buffer from it. */
  #usualBytes = 1_024;

  constructor(driver: KafkaDriver, directory: TopicDirectory, settings: KafkaSettings, topology: Topology) {
    this.#directory = directory;
    this.#settings = settings;
    this.#topology = topology;
    this.#form = { format: settings.format, binding: cloudEventBindings.kafka };
    this.#sender = new Sender(driver, directory, settings);
  }

  async publish(batch: readonly Message[], options: PublishOptions): Promise<readonly PublishOutcome[]> {
    const messages = batch.map((message) => this.#encode(message));
    return this.#publishAll(messages, "messages", options);
  }

  /** Publishes one copy to a retry topic or a dead-letter topic. */
  async publishRaw(
    contents: OutgoingContents,
    purpose: TopicPurpose,
    signal: AbortSignal,
  ): Promise<PublishOutcome> {
    const [outcome] = await this.#publishAll([contents], purpose, { signal });
    return outcome ?? unknownOutcome("no outcome");
  }

  close(): void {
    this.#sender.close();
  }

  async #publishAll(
    messages: readonly OutgoingContents[],
    purpose: TopicPurpose,
    { signal, gathered }: PublishOptions,
  ): Promise<readonly PublishOutcome[]> {
    const topics = await this.#ensureTopics(new Set(messages.map(({ topic }) => topic)), purpose, signal);
    const { length } = messages;
    const call = new PublishCall(length, systemClock.wallMs(), this.#usage, length * this.#usualBytes);
    for (const [index, contents] of messages.entries()) {
      const topic = topics.get(contents.topic);
      if (topic === undefined || topic instanceof Error || signal.aborted)
        call.setOutcome(
          index,
          unreachableOutcome(topic instanceof Error ? describeConnectionError(topic) : ABORTED_TEXT),
        );
      else this.#route(contents, index, topic, call);
    }
    if (length > 0) this.#usualBytes = estimateBytes(call.buffer.end / length);
    this.#sender.flushOrLinger(gathered);
    const giveUp = (): void => {
      for (const outgoing of call.outgoing)
        outgoing.settle(
          outgoing.maybeSent ? unknownOutcome("the caller gave up") : unreachableOutcome(ABORTED_TEXT),
        );
    };
    signal.addEventListener("abort", giveUp, { once: true });
    const outcomes = await call.done;
    signal.removeEventListener("abort", giveUp);
    return outcomes;
  }

  // No message may wait longer than its caller, so the topic lookup is not awaited any more when the caller gives up.
  async #ensureTopics(
    names: ReadonlySet<string>,
    purpose: TopicPurpose,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, TopicView | Error>> {
    const found = new Map<string, TopicView | Error>();
    const lookups = [...names].map(async (name) => {
      const view = await this.#directory.ensure(name, purpose).catch((error: unknown) => toError(error));
      found.set(name, view);
    });
    await untilAborted(Promise.all(lookups), signal);
    return found;
  }

  #route(contents: OutgoingContents, index: number, topic: TopicView, call: PublishCall): void {
    const { buffer } = call;
    const layout = this.#findLayout(topic);
    const start = buffer.end;
    buffer.write(contents);
    const partition =
      contents.key === undefined
        ? layout.next++ % layout.partitions
        : partitionFor(buffer.bytes, layout.partitions, buffer.keyStart, buffer.keyEnd);
    const key = call.stopped.size > 0 ? partitionKey(contents, partition) : "";
    const bytes = RECORD_OVERHEAD + buffer.end - start;
    const flaw = call.stopped.has(key) ? unreachableOutcome(BEHIND_REFUSED_TEXT) : this.#checkSize(bytes);
    if (flaw === undefined)
      return this.#sender.add(contents.topic, partition, call.take(index, start, bytes, layout));
    buffer.end = start;
    call.stopped.add(partitionKey(contents, partition));
    call.setOutcome(index, flaw);
  }

  #checkSize(bytes: number): PublishOutcome | undefined {
    const { topics, bufferBytes } = this.#settings;
    // Compression may make a message fit. One that is more than 16 times too large is not sent.
    if (bytes > topics.maxBytes * 16 || bytes > bufferBytes)
      return { kind: "refused", error: tooLarge(bytes, topics.maxBytes) };
    if (this.#usage.bytes + bytes > bufferBytes) return unreachableOutcome("the send buffer is full");
    return undefined;
  }

  // P-15: the new partition count is used only when no message of the topic is in flight to an old partition.
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

// Adds a small margin for slightly larger records. The average is capped, so that one large record does not make every
// later buffer large.
function estimateBytes(lastBytes: number): number {
  return Math.ceil(Math.min(lastBytes, 16_384) * 1.06) + 16;
}

function tooLarge(bytes: number, maxBytes: number): SagaboxError {
  return new SagaboxError(
    "PAYLOAD_TOO_LARGE",
    `The message has ${bytes} bytes including envelope and headers; topics accept ${maxBytes}.`,
  );
}

function untilAborted(work: Promise<unknown>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const finish = (): void => {
      signal.removeEventListener("abort", finish);
      resolve();
    };
    signal.addEventListener("abort", finish, { once: true });
    work.then(finish, finish);
  });
}

const SEED = 0x9747b28c;
const FACTOR = 0x5bd1e995;

/** The default hash of Kafka's Java producer, as a signed 32-bit integer. */
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

/** Returns the partition that Kafka's Java producer chooses for a key, so that producers in other languages agree. */
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

/** The partition count that messages of a topic are routed with. */
interface TopicLayout {
  partitions: number;
  /** Messages in flight. */
  open: number;
  /** Counter that spreads messages without a key over the partitions. */
  next: number;
}

/** One call of publish: its messages and their outcomes. */
class PublishCall {
  readonly timestampMs: number;
  /** Partitions to which nothing more of this call is sent, because an earlier message was refused. */
  readonly stopped = new Set<string>();
  readonly outgoing: OutgoingMessage[] = [];
  /** Resolves when every message has an outcome. */
  readonly done: Promise<readonly PublishOutcome[]>;
  /** Encoded messages of the call; referenced until the last of them is settled. */
  readonly buffer: RecordBuffer;
  readonly #outcomes: PublishOutcome[];
  readonly #usage: { bytes: number };
  #left: number;
  #resolve: (outcomes: readonly PublishOutcome[]) => void = () => undefined;

  constructor(count: number, nowMs: number, usage: { bytes: number }, expectedBytes: number) {
    this.timestampMs = Math.floor(nowMs);
    this.buffer = new RecordBuffer(expectedBytes);
    this.#outcomes = Array.from({ length: count });
    this.#left = count;
    this.#usage = usage;
    this.done = new Promise((resolve) => (this.#resolve = resolve));
    if (count === 0) this.#resolve([]);
  }

  /** Adds the message that was encoded last. It counts towards the send buffer and its topic until it is settled. */
  take(index: number, start: number, bytes: number, layout: TopicLayout): OutgoingMessage {
    layout.open += 1;
    this.#usage.bytes += bytes;
    const { buffer, timestampMs } = this;
    const outgoing = new PendingMessage(
      this,
      index,
      { buffer, start, end: buffer.end, timestampMs },
      bytes,
      layout,
    );
    this.outgoing.push(outgoing);
    return outgoing;
  }

  releaseBytes(bytes: number): void {
    this.#usage.bytes -= bytes;
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
  maybeSent = false;
  readonly #call: PublishCall;
  readonly #index: number;
  readonly #layout: TopicLayout;

  constructor(call: PublishCall, index: number, record: OutgoingRecord, bytes: number, layout: TopicLayout) {
    this.#call = call;
    this.#index = index;
    this.record = record;
    this.bytes = bytes;
    this.#layout = layout;
  }

  settle(outcome: PublishOutcome): void {
    if (this.settled) return;
    this.settled = true;
    this.#layout.open -= 1;
    this.#call.releaseBytes(this.bytes);
    this.#call.setOutcome(this.#index, outcome);
  }
}
