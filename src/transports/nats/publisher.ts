import { SagaboxError } from "../../errors/index.ts";
import { isValidTopic, type Message } from "../../message/index.ts";
import { after } from "../../runtime/index.ts";
import { toWire, type PublishOptions, type PublishOutcome } from "../../transport/index.ts";
import { encodeValue, headerBytes, toNatsHeaders } from "./header-mapping.ts";
import { unreachable, type Link, type Session } from "./link.ts";
import type { NatsSettings } from "./options.ts";
import { outcomeOf, timedOut, tooLarge } from "./outcome.ts";
import { messageSubject, partitionOf, streamNames } from "./topology.ts";

/** A copy for a retry or a dead letter carries more headers than the original. */
const copyBytes = 2_048;
const mostInFlight = 500;
const PUBLISHED: PublishOutcome = Object.freeze({ kind: "published" });

export class Publisher {
  readonly #link: Link;
  readonly #settings: NatsSettings;
  readonly #stream: string;

  constructor(link: Link, settings: NatsSettings) {
    this.#link = link;
    this.#settings = settings;
    this.#stream = streamNames(settings.prefix).messages;
  }

  async publish(batch: readonly Message[], { signal }: PublishOptions): Promise<PublishOutcome[]> {
    const outcomes: PublishOutcome[] = [];
    while (outcomes.length < batch.length) {
      const some = batch.slice(outcomes.length, outcomes.length + mostInFlight);
      outcomes.push(...(await this.#publishSome(some, signal)));
    }
    return outcomes;
  }

  async #publishSome(batch: readonly Message[], signal: AbortSignal): Promise<PublishOutcome[]> {
    const { session } = this.#link;
    if (session === undefined || signal.aborted) {
      const error = session === undefined ? this.#link.trouble : unreachable("Nobody waits for it any more.");
      return batch.map(() => ({ kind: "unreachable", error }));
    }
    const { givenUp, done } = giveUp([signal, session.over], this.#settings.timeoutMs);
    try {
      return await Promise.all(
        batch.map((message) => Promise.race([this.#publishOne(session, message), givenUp])),
      );
    } finally {
      done();
    }
  }

  async #publishOne(session: Session, message: Message): Promise<PublishOutcome> {
    const { prefix, partitions, timeoutMs } = this.#settings;
    if (!isValidTopic(message.topic)) return { kind: "refused", error: noTopic() };
    const { body, headers } = toWire(message);
    const bytes = body.length + headerBytes(headers) + copyBytes;
    if (bytes > session.maxPayload) {
      return { kind: "refused", error: tooLarge(bytes, session.maxPayload) };
    }
    try {
      await session.js.publish(
        messageSubject(prefix, message.topic, partitionOf(message, partitions)),
        body,
        {
          headers: toNatsHeaders(headers),
          msgID: encodeValue(message.id),
          expect: { streamName: this.#stream },
          timeout: timeoutMs,
        },
      );
      return PUBLISHED;
    } catch (error) {
      return outcomeOf(error);
    }
  }
}

function noTopic(): SagaboxError {
  return new SagaboxError("TOPIC_INVALID", "The topic of the message is no subject that NATS can carry.");
}

// A connection that dies need not answer anybody, so nobody waits for it.
function giveUp(
  signals: readonly AbortSignal[],
  ms: number,
): { readonly givenUp: Promise<PublishOutcome>; readonly done: () => void } {
  let done = (): void => undefined;
  const givenUp = new Promise<PublishOutcome>((resolve) => {
    const end = (): void => resolve({ kind: "unknown", error: timedOut() });
    const cancel = after(ms, end);
    for (const signal of signals) signal.addEventListener("abort", end, { once: true });
    done = () => {
      cancel();
      for (const signal of signals) signal.removeEventListener("abort", end);
    };
  });
  return { givenUp, done };
}
