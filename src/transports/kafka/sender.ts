import { SagaboxError } from "../../errors/index.ts";
import { after, backoffMs, systemClock, type CancelTimer } from "../../runtime/index.ts";
import type { PublishOutcome } from "../../transport/index.ts";
import { describeConnectionError } from "./connections.ts";
import { NoAnswerError, type KafkaDriver, type ProducerIdentity } from "./driver.ts";
import { codes, isStaleView, classifyProduceCode, codeText } from "./kafka-codes.ts";
import type { KafkaSettings } from "./options.ts";
import { PartitionQueue, type Batch, type OutgoingMessage } from "./partition-queue.ts";
import type { TopicDirectory } from "./topic-directory.ts";

const PUBLISHED: PublishOutcome = Object.freeze({ kind: "published" });
const RESEND_BACKOFF = { firstMs: 50, maxMs: 1_000 };
const MAX_REQUEST_BYTES = 1_048_576;

interface Request {
  readonly batches: Batch[];
  bytes: number;
}

/** Gathers messages by partition, sends them together, and finds out what became of each batch. */
export class Sender {
  readonly #driver: KafkaDriver;
  readonly #directory: TopicDirectory;
  readonly #settings: KafkaSettings;
  readonly #queues: PartitionQueue[] = [];
  readonly #byTopic = new Map<string, PartitionQueue[]>();
  readonly #requests = new Map<number, number>();
  readonly #timers = new Set<CancelTimer>();
  #identity: Promise<ProducerIdentity> | undefined;
  #linger: CancelTimer | undefined;
  /** Bytes that came since the last look at what may go. */
  #waitingBytes = 0;
  #closed = false;

  constructor(driver: KafkaDriver, directory: TopicDirectory, settings: KafkaSettings) {
    this.#driver = driver;
    this.#directory = directory;
    this.#settings = settings;
  }

  /** Puts it into its line; `go` sends it. */
  add(topic: string, partition: number, message: OutgoingMessage): void {
    if (this.#closed) return message.settle(unreachableOutcome("the transport is closed"));
    this.#findQueue(topic, partition).add(message);
    this.#waitingBytes += message.bytes;
  }

  /** Everything of a call is in its line: enough for a request goes at once, less waits for company that may come. */
  flushOrLinger(atOnce = false): void {
    if (this.#waitingBytes >= this.#settings.batchBytes || (atOnce && this.#waitingBytes > 0)) this.#flush();
    else if (this.#waitingBytes > 0) this.#linger ??= after(this.#settings.lingerMs, () => this.#flush());
  }

  close(): void {
    this.#closed = true;
    this.#linger?.();
    for (const cancel of this.#timers) cancel();
    for (const line of this.#queues) {
      const { inFlight } = line;
      for (const message of inFlight?.messages ?? [])
        message.settle(unknownOutcome("the transport was closed"));
      for (const message of line.takeWaiting())
        message.settle(unreachableOutcome("the transport was closed"));
    }
  }

  #findQueue(topic: string, partition: number): PartitionQueue {
    const lines = this.#byTopic.get(topic) ?? [];
    const known = lines[partition];
    if (known !== undefined) return known;
    const line = new PartitionQueue(topic, partition);
    lines[partition] = line;
    this.#byTopic.set(topic, lines);
    this.#queues.push(line);
    return line;
  }

  #flush(): void {
    this.#linger?.();
    this.#linger = undefined;
    this.#waitingBytes = 0;
    if (this.#closed) return;
    const requests = new Map<number, Request[]>();
    for (const line of this.#queues) {
      if (!line.ready) continue;
      const node = this.#findLeader(line);
      const mine = requests.get(node) ?? [];
      requests.set(node, mine);
      const last = mine.at(-1);
      const hasRoom = last !== undefined && last.bytes < MAX_REQUEST_BYTES;
      if (!hasRoom && mine.length + (this.#requests.get(node) ?? 0) >= this.#settings.maxInFlight) continue;
      const { batchBytes, topics, timeoutMs } = this.#settings;
      const batch = line.take(batchBytes, topics.maxBytes / 2, systemClock.monotonicMs() + timeoutMs);
      if (batch === undefined) continue;
      const request = hasRoom ? last : { batches: [], bytes: 0 };
      if (!hasRoom) mine.push(request);
      request.batches.push(batch);
      request.bytes += batch.bytes;
    }
    for (const [node, mine] of requests) for (const { batches } of mine) void this.#send(node, batches);
  }

  #findLeader({ topic, partition }: PartitionQueue): number {
    return this.#directory.findKnown(topic)?.partitions[partition]?.leader ?? -1;
  }

  async #send(node: number, batches: readonly Batch[]): Promise<void> {
    this.#requests.set(node, (this.#requests.get(node) ?? 0) + 1);
    try {
      await this.#produce(node, batches);
    } catch (error) {
      this.#handleNoAnswer(batches, error);
    } finally {
      this.#requests.set(node, (this.#requests.get(node) ?? 1) - 1);
      this.#flush();
    }
  }

  async #produce(node: number, batches: readonly Batch[]): Promise<void> {
    const groups = await this.#assignIdentities(batches);
    await Promise.all(
      groups.map(async ([identity, group]) => {
        const { timeoutMs, compression } = this.#settings;
        const wire = group.map(({ line, sequence, messages }) => ({
          topic: line.topic,
          partition: line.partition,
          sequence,
          records: messages.map(({ record }) => record),
        }));
        const answers = await this.#driver
          .produce(node, { identity, timeoutMs, compression, batches: wire })
          .catch((error: unknown) => this.#handleNoAnswer(group, error));
        if (answers === undefined) return;
        for (const batch of group) {
          const { topic, partition } = batch.line;
          const answer = answers.find((found) => found.topic === topic && found.partition === partition);
          this.#handleAnswer(batch, answer?.code ?? codes.networkException, answer?.bytes);
        }
      }),
    );
  }

  // A request speaks with one identity; batches that came into doubt have another one than the rest.
  async #assignIdentities(batches: readonly Batch[]): Promise<[ProducerIdentity, Batch[]][]> {
    const groups = new Map<ProducerIdentity, Batch[]>();
    for (const batch of batches) {
      const identity = batch.identity ?? (await this.#currentIdentity());
      batch.line.identify(batch, identity);
      groups.set(identity, [...(groups.get(identity) ?? []), batch]);
    }
    return [...groups];
  }

  #currentIdentity(): Promise<ProducerIdentity> {
    this.#identity ??= this.#driver.newIdentity().catch((error: unknown) => {
      this.#identity = undefined;
      throw error;
    });
    return this.#identity;
  }

  #handleAnswer(batch: Batch, code: number, wireBytes: number | undefined): void {
    if (code === codes.none || code === codes.duplicateSequence) return this.#settleStored(batch, wireBytes);
    if (isStaleView(code)) this.#directory.forget(batch.line.topic);
    const said = `topic "${batch.line.topic}": ${codeText(code)}`;
    switch (classifyProduceCode(code)) {
      case "again":
        return this.#retryLater(batch, said);
      case "again, maybe there":
        batch.maybeThere = true;
        return this.#retryLater(batch, said);
      case "too large":
        return this.#splitOrFail(batch, { kind: "refused", error: rejectedError(said) });
      case "its fault":
        return this.#splitOrFail(batch, { kind: "rejected", error: rejectedError(said) });
      case "denied":
        return this.#failBatch(batch, unreachableOutcome(said));
      case "new identity":
        return this.#failBatch(batch, unknownOutcome(said));
    }
  }

  #handleNoAnswer(batches: readonly Batch[], error: unknown): undefined {
    const sent = !(error instanceof NoAnswerError) || error.sent;
    for (const batch of batches) {
      if (batch.line.inFlight !== batch) continue;
      batch.maybeThere ||= sent;
      if (batch.maybeThere) this.#retryLater(batch, describeConnectionError(error));
      else this.#failBatch(batch, unreachableOutcome(describeConnectionError(error)));
    }
    for (const { line } of batches) this.#directory.forget(line.topic);
    return undefined;
  }

  #settleStored(batch: Batch, wireBytes: number | undefined): void {
    batch.line.completeBatch(batch, wireBytes);
    for (const message of batch.messages) message.settle(PUBLISHED);
  }

  // With the same identity and sequence the broker stores it once, however often it is asked.
  #retryLater(batch: Batch, reason: string): void {
    batch.tries += 1;
    const waitMs = backoffMs(RESEND_BACKOFF, batch.tries);
    if (this.#closed || systemClock.monotonicMs() + waitMs > batch.endMs)
      return this.#failBatch(batch, batch.maybeThere ? unknownOutcome(reason) : unreachableOutcome(reason));
    const cancel = after(waitMs, () => {
      this.#timers.delete(cancel);
      void this.#resend(batch);
    });
    this.#timers.add(cancel);
  }

  async #resend(batch: Batch): Promise<void> {
    try {
      await this.#directory.ensure(batch.line.topic);
    } catch (error) {
      return this.#retryLater(batch, describeConnectionError(error));
    }
    await this.#send(this.#findLeader(batch.line), [batch]);
  }

  #splitOrFail(batch: Batch, outcome: PublishOutcome): void {
    if (batch.messages.length === 1) return this.#failBatch(batch, outcome);
    batch.line.retryOneByOne(batch);
  }

  #failBatch(batch: Batch, outcome: PublishOutcome): void {
    if (outcome.kind === "unknown") {
      batch.line.resetIdentity();
      this.#identity = undefined;
    }
    const behind = batch.line.takeWaiting();
    for (const message of batch.messages) message.settle(outcome);
    for (const message of behind)
      message.settle(unreachableOutcome("an earlier message for the same partition did not get through"));
  }
}

function rejectedError(reason: string): SagaboxError {
  return new SagaboxError("TRANSPORT_REJECTED", `Kafka refused the message: ${reason}.`);
}

export function unreachableOutcome(reason: string): PublishOutcome {
  return { kind: "unreachable", error: new SagaboxError("TRANSPORT_UNREACHABLE", `Kafka: ${reason}.`) };
}

export function unknownOutcome(reason: string): PublishOutcome {
  const error = new SagaboxError("TRANSPORT_TIMEOUT", `Kafka did not confirm: ${reason}.`);
  return { kind: "unknown", error };
}
