import { isSagaboxError } from "../errors/index.ts";
import { parseTraceparent, type Message } from "../message/index.ts";
import {
  silentSpan,
  type Span,
  type SpanAttributes,
  type SpanFailure,
  type SpanStart,
  type Tracing,
} from "./tracing.ts";

/** What spans say of a message. Its key and its data are left out: both may be about a person. */
export type SpanMessage = Pick<Message, "id" | "type" | "topic"> &
  Partial<Pick<Message, "correlationId" | "traceparent" | "sagaId">>;

/** What spans say of an instance of a saga. */
export interface SpanSaga {
  readonly id: string;
  readonly type: string;
  readonly traceparent: string;
}

interface DeliveryAttempt {
  readonly consumer: string;
  readonly attempt: number;
}

const MAX_TEXT_LENGTH = 1_000;
const MAX_STACK_LENGTH = 4_000;
/** As many as an SDK keeps by default. */
const MAX_LINKS = 128;

/**
 * The spans of this library, by the messaging conventions of OpenTelemetry: `create` where a message is written, `send`
 * where it goes to the broker, `process` where it is handled. Without tracing every one of them is the silent span.
 */
export class Spans {
  readonly enabled: boolean;
  readonly #tracing: Tracing | undefined;
  readonly #system: string;

  constructor(tracing: Tracing | undefined, system: string) {
    this.enabled = tracing !== undefined;
    this.#tracing = tracing;
    this.#system = system === "postgres" ? "postgresql" : system;
  }

  /** The span that runs, ours or the caller's. */
  currentSpan(): Span {
    return this.#tracing?.active() ?? silentSpan;
  }

  /** A message is made. It carries this span's traceparent, so that all that becomes of it belongs to one trace. */
  create(message: SpanMessage, caused: string | undefined, said: string | undefined): Span {
    return this.#begin("create", "producer", message.topic, {
      parent: said ?? this.currentSpan().traceparent ?? caused,
      attributes: messageAttributes(message),
    });
  }

  /** One trip to the broker: a span in the trace of each message, and one for the trip where it carries several. */
  send(messages: readonly SpanMessage[], via: "relay" | "optimistic"): SendSpans {
    if (!this.enabled) return silentSend;
    const many = messages.length > 1;
    const trip = many ? this.#trip(messages, via) : silentSpan;
    const link = trip.traceparent === undefined ? [] : [trip.traceparent];
    const each = messages.map((message) =>
      this.#begin("send", "client", message.topic, {
        parent: message.traceparent,
        links: [...linksTo([message]), ...link],
        attributes: { ...messageAttributes(message), "sagabox.via": via },
      }),
    );
    return { each, trip: many ? trip : (each[0] ?? silentSpan) };
  }

  /** A message is handled. What the handler does belongs to it. */
  process(message: SpanMessage, { consumer, attempt }: DeliveryAttempt): Span {
    return this.#begin("process", "consumer", message.topic, {
      parent: message.traceparent,
      links: linksTo([message]),
      attributes: {
        ...messageAttributes(message),
        "messaging.consumer.group.name": consumer,
        "sagabox.attempt": attempt,
      },
    });
  }

  /** Several are handled at once, in the trace of `within` or in one of their own. */
  processBatch(messages: readonly SpanMessage[], consumer: string, within?: string): Span {
    return this.#begin("process", "consumer", onlyTopic(messages), {
      parent: within,
      links: linksTo(messages),
      attributes: {
        "messaging.consumer.group.name": consumer,
        "messaging.batch.message_count": messages.length,
      },
    });
  }

  /** Somebody waits for a reply. */
  request(type: string, said: string | undefined): Span {
    return this.#internal(`request ${type}`, {
      parent: said ?? this.currentSpan().traceparent,
      attributes: { "sagabox.message.type": type },
    });
  }

  startSaga(id: string, type: string, caused: string | undefined): Span {
    return this.#internal(`start ${type}`, {
      parent: this.currentSpan().traceparent ?? caused,
      attributes: { "sagabox.saga.id": id, "sagabox.saga.type": type },
    });
  }

  /** An instance goes from one state to the next, in its own trace whoever made it move. */
  transition(saga: SpanSaga, attributes: SpanAttributes): Span {
    return this.#internal(`transition ${saga.type}`, this.#startSagaSpan(saga, attributes));
  }

  /** A local step of an instance, or its undo. */
  step(saga: SpanSaga, step: string, attributes: SpanAttributes): Span {
    const name = step.replace(/@.*/, ""); // rounds of a repetition share a name
    return this.#internal(`step ${saga.type} ${name}`, {
      ...this.#startSagaSpan(saga, { "sagabox.saga.step": step, ...attributes }),
    });
  }

  #startSagaSpan(
    { id, type, traceparent }: SpanSaga,
    attributes: SpanAttributes,
  ): Omit<SpanStart, "name" | "kind"> {
    const active = this.currentSpan().traceparent;
    const isOwn = parseTraceId(active) === parseTraceId(traceparent);
    return {
      parent: isOwn ? active : traceparent,
      links: isOwn || active === undefined ? [] : [active],
      attributes: { "sagabox.saga.id": id, "sagabox.saga.type": type, ...attributes },
    };
  }

  #trip(messages: readonly SpanMessage[], via: string): Span {
    return this.#begin("send", "client", onlyTopic(messages), {
      links: linksTo(messages),
      attributes: { "messaging.batch.message_count": messages.length, "sagabox.via": via },
    });
  }

  #internal(name: string, start: Omit<SpanStart, "name" | "kind">): Span {
    return this.#tracing?.begin({ ...start, name, kind: "internal" }) ?? silentSpan;
  }

  #begin(
    operation: "create" | "send" | "process",
    kind: SpanStart["kind"],
    topic: string | undefined,
    start: Omit<SpanStart, "name" | "kind">,
  ): Span {
    if (this.#tracing === undefined) return silentSpan;
    return this.#tracing.begin({
      ...start,
      name: topic === undefined ? operation : `${operation} ${topic}`,
      kind,
      attributes: {
        "messaging.system": this.#system,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
        ...start.attributes,
      },
    });
  }
}

export const silentSpans = new Spans(undefined, "none");

/** The spans of one trip. */
export interface SendSpans {
  readonly each: readonly Span[];
  readonly trip: Span;
}

const silentSend: SendSpans = { each: [], trip: silentSpan };

/** Ends the spans of a trip; `failureOf` says what became of each message. */
export function endSend(spans: SendSpans, failureOf: (index: number) => Error | undefined): void {
  for (const [index, span] of spans.each.entries()) {
    const error = failureOf(index);
    if (error !== undefined) {
      const failure = spanFailure(error);
      span.fail(failure);
      if (span !== spans.trip) spans.trip.fail({ type: failure.type });
    }
    span.end();
  }
  if (!spans.each.includes(spans.trip)) spans.trip.end();
}

/** An error as a span tells it. Whoever calls this has taken personal texts out of it. */
export function spanFailure(error: Error): SpanFailure {
  return {
    type: failureType(error),
    message: error.message.slice(0, MAX_TEXT_LENGTH),
    stack: error.stack?.slice(0, MAX_STACK_LENGTH),
  };
}

/** The class of an error and nothing it says, for where nobody knows what that may hold. */
export function failureType(error: unknown): string {
  if (isSagaboxError(error)) return error.code;
  return error instanceof Error ? error.name.slice(0, 100) : "unknown";
}

function messageAttributes({ id, type, correlationId, sagaId }: SpanMessage): SpanAttributes {
  return {
    "messaging.message.id": id,
    "messaging.message.conversation_id": correlationId,
    "sagabox.message.type": type,
    "sagabox.saga.id": sagaId ?? undefined,
  };
}

function linksTo(messages: readonly SpanMessage[]): string[] {
  return messages.slice(0, MAX_LINKS).flatMap(({ traceparent }) => traceparent ?? []);
}

function onlyTopic(all: readonly { readonly topic: string }[]): string | undefined {
  const [first] = all;
  return all.every(({ topic }) => topic === first?.topic) ? first?.topic : undefined;
}

function parseTraceId(traceparent: string | undefined): string | undefined {
  return parseTraceparent(traceparent)?.traceId;
}
