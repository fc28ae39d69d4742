import { SagaboxError, toError } from "../../errors/index.ts";
import type { Message } from "../../message/index.ts";
import { systemClock } from "../../runtime/index.ts";
import {
  cloudEventBindings,
  toWireParts,
  type PublishOptions,
  type PublishOutcome,
  type WireForm,
} from "../../transport/index.ts";
import { describeConnectionError } from "./connections.ts";
import type { KafkaDriver, TopicView } from "./driver.ts";
import type { KafkaSettings } from "./options.ts";
import { partitionFor } from "./partitioner.ts";
import { PublishCall, type TopicLayout } from "./publish-call.ts";
import type { RecordContents } from "./record-buffer.ts";
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
