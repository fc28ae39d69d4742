import { SagaboxError } from "../../errors/index.ts";
import { systemClock } from "../../runtime/index.ts";
import type { Message } from "../../message/index.ts";
import {
  cloudEventBindings,
  toWire,
  type DeadLetterNote,
  type RetryOptions,
  type Subscription,
} from "../../transport/index.ts";
import type { IncomingRecord } from "./driver.ts";
import type { KafkaSettings } from "./options.ts";
import type { Publisher } from "./publisher.ts";
import { readAttempt, deadLetterHeaders, retryHeaders } from "./record-headers.ts";
import type { TopicPurpose } from "./topic-directory.ts";
import { retryStep, type Topology } from "./topology.ts";

/** Copies records to the retry topics and the dead-letter topic that belong to a topic. */
export class RecordCopier {
  readonly #publisher: Publisher;
  readonly #settings: KafkaSettings;
  readonly #topology: Topology;
  readonly #subscription: Subscription;

  constructor(publisher: Publisher, settings: KafkaSettings, topology: Topology, subscription: Subscription) {
    this.#publisher = publisher;
    this.#settings = settings;
    this.#topology = topology;
    this.#subscription = subscription;
  }

  /** Maps the name of each retry topic to the topic whose messages it holds. */
  retryTopics(): ReadonlyMap<string, string> {
    const { topics } = this.#subscription;
    return new Map(
      topics.flatMap(({ topic }) =>
        this.#settings.retryStepsMs.map((_, n) => [this.#retryTopic(topic, n + 1), topic] as const),
      ),
    );
  }

  copyToRetry(
    topic: string,
    record: IncomingRecord,
    { delayMs, countsAsAttempt }: RetryOptions,
    signal: AbortSignal,
  ): Promise<void> {
    const attempt = readAttempt(record.headers) + (countsAsAttempt ? 1 : 0);
    const headers = retryHeaders(record.headers, attempt, systemClock.wallMs() + delayMs);
    const name = this.#retryTopic(topic, retryStep(delayMs, this.#settings.retryStepsMs));
    return this.#publishCopy(name, "retry", record, headers, signal);
  }

  copyToDeadLetters(
    topic: string,
    record: IncomingRecord,
    note: DeadLetterNote,
    signal: AbortSignal,
  ): Promise<void> {
    const headers = deadLetterHeaders(record.headers, note);
    return this.#publishCopy(this.#topology.deadLetterTopic(topic), "dead letters", record, headers, signal);
  }

  /** Writes a dead letter for a message whose delivery was already acknowledged. */
  copyMessageToDeadLetters(message: Message, note: DeadLetterNote): Promise<void> {
    const { body, headers } = toWire(message, {
      format: this.#settings.format,
      binding: cloudEventBindings.kafka,
    });
    const own = Object.entries({ ...headers, ...note }).map(
      ([name, value]) => [Buffer.from(name), Buffer.from(value)] as const,
    );
    const record = { key: message.key === null ? null : Buffer.from(message.key), value: body };
    const { signal } = new AbortController(); // the publisher has a deadline of its own
    return this.#publishCopy(
      this.#topology.deadLetterTopic(message.topic),
      "dead letters",
      record,
      new Map(own),
      signal,
    );
  }

  #retryTopic(topic: string, step: number): string {
    const { service, group } = this.#subscription;
    return this.#topology.retryTopic(topic, service, group, step);
  }

  async #publishCopy(
    topic: string,
    purpose: TopicPurpose,
    { key, value }: Pick<IncomingRecord, "key" | "value">,
    headers: Map<Buffer, Buffer>,
    signal: AbortSignal,
  ): Promise<void> {
    const contents = { topic, key: key ?? undefined, value, headers: [...headers].flat() };
    const outcome = await this.#publisher.publishRaw(contents, purpose, signal);
    if (outcome.kind === "published") return;
    throw new SagaboxError(
      "TRANSPORT_UNREACHABLE",
      `The copy for "${topic}" was not confirmed: ${outcome.error.message}`,
      { cause: outcome.error },
    );
  }
}
