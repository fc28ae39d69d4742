import { SagaboxError } from "../../errors/index.ts";
import { after, systemClock, type CancelTimer } from "../../runtime/index.ts";
import type { PublishOutcome } from "../../transport/index.ts";
import { messageOf } from "./connections.ts";
import { NoAnswer, type KafkaDriver, type ProducerIdentity } from "./driver.ts";
import { codes, isStaleView, produceFailure, sayCode } from "./kafka-codes.ts";
import type { KafkaSettings } from "./options.ts";
import { PartitionLine, type Batch, type Outgoing } from "./partition-line.ts";
import type { TopicDirectory } from "./topic-directory.ts";

const PUBLISHED: PublishOutcome = Object.freeze({ kind: "published" });
const REQUEST_BYTES = 1_048_576;

interface Request {
  readonly batches: Batch[];
  bytes: number;
}

/** Gathers messages by partition, sends them together, and finds out what became of each batch. */
export class Sender {
  readonly #driver: KafkaDriver;
  readonly #directory: TopicDirectory;
  readonly #settings: KafkaSettings;
  readonly #lines: PartitionLine[] = [];
  readonly #byTopic = new Map<string, PartitionLine[]>();
  readonly #requests = new Map<number, number>();
  readonly #timers = new Set<CancelTimer>();
  #identity: Promise<ProducerIdentity> | undefined;
  #linger: CancelTimer | undefined;
  /** Bytes that came since the last look at what may go. */
  #gathered = 0;
  #closed = false;

  constructor(driver: KafkaDriver, directory: TopicDirectory, settings: KafkaSettings) {
    this.#driver = driver;
    this.#directory = directory;
    this.#settings = settings;
  }

  /** Puts it into its line; `go` sends it. */
  add(topic: string, partition: number, message: Outgoing): void {
    if (this.#closed) return message.settle(unreachable("the transport is closed"));
    this.#line(topic, partition).add(message);
    this.#gathered += message.bytes;
  }

  /** Everything of a call is in its line: enough for a request goes at once, less waits for company that may come. */
  go(atOnce = false): void {
    if (this.#gathered >= this.#settings.batchBytes || (atOnce && this.#gathered > 0)) this.#flush();
    else if (this.#gathered > 0) this.#linger ??= after(this.#settings.lingerMs, () => this.#flush());
  }

  close(): void {
    this.#closed = true;
    this.#linger?.();
    for (const cancel of this.#timers) cancel();
    for (const line of this.#lines) {
      const { inFlight } = line;
      for (const message of inFlight?.messages ?? []) message.settle(unknown("the transport was closed"));
      for (const message of line.fail()) message.settle(unreachable("the transport was closed"));
    }
  }

  #line(topic: string, partition: number): PartitionLine {
    const lines = this.#byTopic.get(topic) ?? [];
    const known = lines[partition];
    if (known !== undefined) return known;
    const line = new PartitionLine(topic, partition);
    lines[partition] = line;
    this.#byTopic.set(topic, lines);
    this.#lines.push(line);
    return line;
  }

  #flush(): void {
    this.#linger?.();
    this.#linger = undefined;
    this.#gathered = 0;
    if (this.#closed) return;
    const requests = new Map<number, Request[]>();
    for (const line of this.#lines) {
      if (!line.ready) continue;
      const node = this.#leader(line);
      const mine = requests.get(node) ?? [];
      requests.set(node, mine);
      const last = mine.at(-1);
      const hasRoom = last !== undefined && last.bytes < REQUEST_BYTES;
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

  #leader({ topic, partition }: PartitionLine): number {
    return this.#directory.seen(topic)?.partitions[partition]?.leader ?? -1;
  }

  async #send(node: number, batches: readonly Batch[]): Promise<void> {
    this.#requests.set(node, (this.#requests.get(node) ?? 0) + 1);
    try {
      await this.#try(node, batches);
    } catch (error) {
      this.#noAnswer(batches, error);
    } finally {
      this.#requests.set(node, (this.#requests.get(node) ?? 1) - 1);
      this.#flush();
    }
  }

  async #try(node: number, batches: readonly Batch[]): Promise<void> {
    const groups = await this.#identified(batches);
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
          .catch((error: unknown) => this.#noAnswer(group, error));
        if (answers === undefined) return;
        for (const batch of group) {
          const { topic, partition } = batch.line;
          const answer = answers.find((found) => found.topic === topic && found.partition === partition);
          this.#answered(batch, answer?.code ?? codes.networkException, answer?.bytes);
        }
      }),
    );
  }

  // A request speaks with one identity; batches that came into doubt have another one than the rest.
  async #identified(batches: readonly Batch[]): Promise<[ProducerIdentity, Batch[]][]> {
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

  #answered(batch: Batch, code: number, wireBytes: number | undefined): void {
    if (code === codes.none || code === codes.duplicateSequence) return this.#stored(batch, wireBytes);
    if (isStaleView(code)) this.#directory.forget(batch.line.topic);
    const said = `topic "${batch.line.topic}": ${sayCode(code)}`;
    switch (produceFailure(code)) {
      case "again":
        return this.#again(batch, said);
      case "again, maybe there":
        batch.maybeThere = true;
        return this.#again(batch, said);
      case "too large":
        return this.#blame(batch, { kind: "refused", error: rejected(said) });
      case "its fault":
        return this.#blame(batch, { kind: "rejected", error: rejected(said) });
      case "denied":
        return this.#failed(batch, unreachable(said));
      case "new identity":
        return this.#failed(batch, unknown(said));
    }
  }

  #noAnswer(batches: readonly Batch[], error: unknown): undefined {
    const sent = !(error instanceof NoAnswer) || error.sent;
    for (const batch of batches) {
      if (batch.line.inFlight !== batch) continue;
      batch.maybeThere ||= sent;
      if (batch.maybeThere) this.#again(batch, messageOf(error));
      else this.#failed(batch, unreachable(messageOf(error)));
    }
    for (const { line } of batches) this.#directory.forget(line.topic);
    return undefined;
  }

  #stored(batch: Batch, wireBytes: number | undefined): void {
    batch.line.stored(batch, wireBytes);
    for (const message of batch.messages) message.settle(PUBLISHED);
  }

  // With the same identity and sequence the broker stores it once, however often it is asked.
  #again(batch: Batch, reason: string): void {
    const waitMs = Math.min(1_000, 50 * 2 ** batch.tries);
    batch.tries += 1;
    if (this.#closed || systemClock.monotonicMs() + waitMs > batch.endMs)
      return this.#failed(batch, batch.maybeThere ? unknown(reason) : unreachable(reason));
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
      return this.#again(batch, messageOf(error));
    }
    await this.#send(this.#leader(batch.line), [batch]);
  }

  #blame(batch: Batch, outcome: PublishOutcome): void {
    if (batch.messages.length === 1) return this.#failed(batch, outcome);
    batch.line.split(batch);
  }

  #failed(batch: Batch, outcome: PublishOutcome): void {
    if (outcome.kind === "unknown") {
      batch.line.doubt();
      this.#identity = undefined;
    }
    const behind = batch.line.fail();
    for (const message of batch.messages) message.settle(outcome);
    for (const message of behind)
      message.settle(unreachable("an earlier message for the same partition did not get through"));
  }
}

function rejected(reason: string): SagaboxError {
  return new SagaboxError("TRANSPORT_REJECTED", `Kafka refused the message: ${reason}.`);
}

export function unreachable(reason: string): PublishOutcome {
  return { kind: "unreachable", error: new SagaboxError("TRANSPORT_UNREACHABLE", `Kafka: ${reason}.`) };
}

export function unknown(reason: string): PublishOutcome {
  const error = new SagaboxError("TRANSPORT_TIMEOUT", `Kafka did not confirm: ${reason}.`);
  return { kind: "unknown", error };
}
