import { SagaboxError } from "../../errors/index.ts";
import { isValidTopic, type Message } from "../../message/index.ts";
import { after } from "../../runtime/index.ts";
import {
  cloudEventBindings,
  toWire,
  type PublishOptions,
  type PublishOutcome,
} from "../../transport/index.ts";
import { Confirms } from "./confirms.ts";
import { encodeValue, headerBytes, toNatsHeaders } from "./header-mapping.ts";
import { unreachableError, type Link, type Session } from "./link.ts";
import type { NatsSettings } from "./options.ts";
import { timeoutError, tooLargeError } from "./outcome.ts";
import { messageSubject, partitionFor, streamNames } from "./topology.ts";

/** A copy for a retry or a dead letter carries more headers than the original. */
const COPY_HEADER_BYTES = 2_048;
const MAX_IN_FLIGHT = 500;

type Sending = ReturnType<Confirms["send"]>;

export class Publisher {
  readonly #link: Link;
  readonly #settings: NatsSettings;
  readonly #stream: string;
  #confirms: { readonly nc: Session["nc"]; readonly confirms: Confirms } | undefined;

  constructor(link: Link, settings: NatsSettings) {
    this.#link = link;
    this.#settings = settings;
    this.#stream = streamNames(settings.prefix).messages;
  }

  async publish(batch: readonly Message[], { signal }: PublishOptions): Promise<PublishOutcome[]> {
    const outcomes: PublishOutcome[] = [];
    while (outcomes.length < batch.length) {
      const some = batch.slice(outcomes.length, outcomes.length + MAX_IN_FLIGHT);
      outcomes.push(...(await this.#publishChunk(some, signal)));
    }
    return outcomes;
  }

  async #publishChunk(batch: readonly Message[], signal: AbortSignal): Promise<PublishOutcome[]> {
    const { session } = this.#link;
    if (session === undefined || signal.aborted) {
      const error =
        session === undefined ? this.#link.trouble : unreachableError("Nobody waits for it any more.");
      return batch.map(() => ({ kind: "unreachable", error }));
    }
    const confirms = this.#confirmsFor(session);
    const { givenUp, done } = giveUpOnAbort([signal, session.over], this.#settings.timeoutMs);
    const sent = batch.map((message) => this.#send(session, confirms, message));
    try {
      const outcomes = await Promise.all(
        sent.map(async (one) => ("kind" in one ? one : Promise.race([one.outcome, givenUp]))),
      );
      if (!outcomes.some(({ kind }) => kind === "unreachable")) return outcomes;
      const { missingStream: error } = this.#link;
      this.#link.checkStreams(session);
      if (error === undefined) return outcomes;
      return outcomes.map((outcome) => (outcome.kind === "unreachable" ? { ...outcome, error } : outcome));
    } finally {
      done();
      for (const one of sent) if ("token" in one) confirms.forget(one.token);
    }
  }

  #confirmsFor({ nc }: Session): Confirms {
    if (this.#confirms?.nc !== nc) {
      this.#confirms = { nc, confirms: new Confirms(nc, this.#settings.inboxPrefix) };
    }
    return this.#confirms.confirms;
  }

  #send(session: Session, confirms: Confirms, message: Message): PublishOutcome | Sending {
    const { prefix, partitions } = this.#settings;
    if (!isValidTopic(message.topic)) return { kind: "refused", error: noTopicError() };
    const { body, headers } = toWire(message, {
      format: this.#settings.format,
      binding: cloudEventBindings.nats,
    });
    const bytes = body.length + headerBytes(headers) + COPY_HEADER_BYTES;
    if (bytes > session.maxPayload) {
      return { kind: "refused", error: tooLargeError(bytes, session.maxPayload) };
    }
    const given = toNatsHeaders(headers);
    given.set("Nats-Msg-Id", encodeValue(message.id));
    given.set("Nats-Expected-Stream", this.#stream);
    const subject = messageSubject(prefix, message.topic, partitionFor(message, partitions));
    return confirms.send(subject, body, given);
  }
}

function noTopicError(): SagaboxError {
  return new SagaboxError("TOPIC_INVALID", "The topic of the message is no subject that NATS can carry.");
}

// A connection that dies need not answer anybody, so nobody waits for it.
function giveUpOnAbort(
  signals: readonly AbortSignal[],
  ms: number,
): { readonly givenUp: Promise<PublishOutcome>; readonly done: () => void } {
  let done = (): void => undefined;
  const givenUp = new Promise<PublishOutcome>((resolve) => {
    const end = (): void => resolve({ kind: "unknown", error: timeoutError() });
    const cancel = after(ms, end);
    for (const signal of signals) signal.addEventListener("abort", end, { once: true });
    done = () => {
      cancel();
      for (const signal of signals) signal.removeEventListener("abort", end);
    };
  });
  return { givenUp, done };
}
