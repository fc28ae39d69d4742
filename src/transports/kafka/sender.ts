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

/** Collects messages by partition, sends them in batches, retries, and settles each message with its outcome. */
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
  /** Bytes added since the last flush. */
  #waitingBytes = 0;
  #closed = false;

  constructor(driver: KafkaDriver, directory: TopicDirectory, settings: KafkaSettings) {
    this.#driver = driver;
    this.#directory = directory;
    this.#settings = settings;
  }

  /** Adds a message to its partition's queue; `flushOrLinger` sends it. */
  add(topic: string, partition: number, message: OutgoingMessage): void {
    if (this.#closed) return message.settle(unreachableOutcome("the transport is closed"));
    this.#findQueue(topic, partition).add(message);
    this.#waitingBytes += message.bytes;
  }

  /** Sends at once if a batch is full or `atOnce` is true; otherwise waits up to `linger` for more messages. */
  flushOrLinger(atOnce = false): void {
    if (this.#waitingBytes >= this.#settings.batchBytes || (atOnce && this.#waitingBytes > 0)) this.#flush();
    else if (this.#waitingBytes > 0) this.#linger ??= after(this.#settings.lingerMs, () => this.#flush());
  }

  close(): void {
    this.#closed = true;
    this.#linger?.();
    for (const cancel of this.#timers) cancel();
    for (const queue of this.#queues) {
      const { inFlight } = queue;
      for (const message of inFlight?.messages ?? [])
        message.settle(unknownOutcome("the transport was closed"));
      for (const message of queue.takeWaiting())
        message.settle(unreachableOutcome("the transport was closed"));
    }
  }

  #findQueue(topic: string, partition: number): PartitionQueue {
    const queues = this.#byTopic.get(topic) ?? [];
    const known = queues[partition];
    if (known !== undefined) return known;
    const queue = new PartitionQueue(topic, partition);
    queues[partition] = queue;
    this.#byTopic.set(topic, queues);
    this.#queues.push(queue);
    return queue;
  }

  #flush(): void {
    this.#linger?.();
    this.#linger = undefined;
    this.#waitingBytes = 0;
    if (this.#closed) return;
    const requests = new Map<number, Request[]>();
    for (const queue of this.#queues) {
      if (!queue.ready) continue;
      const node = this.#findLeader(queue);
      const nodeRequests = requests.get(node) ?? [];
      requests.set(node, nodeRequests);
      const last = nodeRequests.at(-1);
      const hasRoom = last !== undefined && last.bytes < MAX_REQUEST_BYTES;
      if (!hasRoom && nodeRequests.length + (this.#requests.get(node) ?? 0) >= this.#settings.maxInFlight)
        continue;
      const { batchBytes, topics, timeoutMs } = this.#settings;
      const batch = queue.take(batchBytes, topics.maxBytes / 2, systemClock.monotonicMs() + timeoutMs);
      if (batch === undefined) continue;
      const request = hasRoom ? last : { batches: [], bytes: 0 };
      if (!hasRoom) nodeRequests.push(request);
      request.batches.push(batch);
      request.bytes += batch.bytes;
    }
    for (const [node, nodeRequests] of requests)
      for (const { batches } of nodeRequests) void this.#send(node, batches);
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
        const wire = group.map(({ queue, sequence, messages }) => ({
          topic: queue.topic,
          partition: queue.partition,
          sequence,
          records: messages.map(({ record }) => record),
        }));
        const answers = await this.#driver
          .produce(node, { identity, timeoutMs, compression, batches: wire })
          .catch((error: unknown) => this.#handleNoAnswer(group, error));
        if (answers === undefined) return;
        for (const batch of group) {
          const { topic, partition } = batch.queue;
          const answer = answers.find((found) => found.topic === topic && found.partition === partition);
          this.#handleAnswer(batch, answer?.code ?? codes.networkException, answer?.bytes);
        }
      }),
    );
  }

  // A request carries one producer identity. A batch that is sent again keeps its first identity.
  async #assignIdentities(batches: readonly Batch[]): Promise<[ProducerIdentity, Batch[]][]> {
    const groups = new Map<ProducerIdentity, Batch[]>();
    for (const batch of batches) {
      const identity = batch.identity ?? (await this.#currentIdentity());
      batch.queue.identify(batch, identity);
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
    if (isStaleView(code)) this.#directory.forget(batch.queue.topic);
    const reason = `topic "${batch.queue.topic}": ${codeText(code)}`;
    switch (classifyProduceCode(code)) {
      case "retry":
        return this.#retryLater(batch, reason);
      case "retry, maybe stored":
        batch.maybeStored = true;
        return this.#retryLater(batch, reason);
      case "too large":
        return this.#splitOrFail(batch, { kind: "refused", error: rejectedError(reason) });
      case "invalid":
        return this.#splitOrFail(batch, { kind: "rejected", error: rejectedError(reason) });
      case "denied":
        return this.#failBatch(batch, unreachableOutcome(reason));
      case "new identity":
        return this.#failBatch(batch, unknownOutcome(reason));
    }
  }

  #handleNoAnswer(batches: readonly Batch[], error: unknown): undefined {
    const sent = !(error instanceof NoAnswerError) || error.sent;
    for (const batch of batches) {
      if (batch.queue.inFlight !== batch) continue;
      batch.maybeStored ||= sent;
      if (batch.maybeStored) this.#retryLater(batch, describeConnectionError(error));
      else this.#failBatch(batch, unreachableOutcome(describeConnectionError(error)));
    }
    for (const { queue } of batches) this.#directory.forget(queue.topic);
    return undefined;
  }

  #settleStored(batch: Batch, wireBytes: number | undefined): void {
    batch.queue.completeBatch(batch, wireBytes);
    for (const message of batch.messages) message.settle(PUBLISHED);
  }

  // A batch is sent again with its identity and sequence, so the broker stores it only once.
  #retryLater(batch: Batch, reason: string): void {
    batch.tries += 1;
    const waitMs = backoffMs(RESEND_BACKOFF, batch.tries);
    if (this.#closed || systemClock.monotonicMs() + waitMs > batch.endMs)
      return this.#failBatch(batch, batch.maybeStored ? unknownOutcome(reason) : unreachableOutcome(reason));
    const cancel = after(waitMs, () => {
      this.#timers.delete(cancel);
      void this.#resend(batch);
    });
    this.#timers.add(cancel);
  }

  async #resend(batch: Batch): Promise<void> {
    try {
      await this.#directory.ensure(batch.queue.topic);
    } catch (error) {
      return this.#retryLater(batch, describeConnectionError(error));
    }
    await this.#send(this.#findLeader(batch.queue), [batch]);
  }

  #splitOrFail(batch: Batch, outcome: PublishOutcome): void {
    if (batch.messages.length === 1) return this.#failBatch(batch, outcome);
    batch.queue.retryOneByOne(batch);
  }

  #failBatch(batch: Batch, outcome: PublishOutcome): void {
    if (outcome.kind === "unknown") {
      batch.queue.resetIdentity();
      this.#identity = undefined;
    }
    const behind = batch.queue.takeWaiting();
    for (const message of batch.messages) message.settle(outcome);
    for (const message of behind)
      message.settle(unreachableOutcome("an earlier message for the same partition failed"));
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
