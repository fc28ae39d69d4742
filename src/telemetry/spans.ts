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

/** The message fields recorded in spans. Key and data are excluded, because both may be personal. */
export type SpanMessage = Pick<Message, "id" | "type" | "topic"> &
  Partial<Pick<Message, "correlationId" | "traceparent" | "sagaId">>;

/** The fields of a saga instance recorded in spans. */
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
/** The default limit of OpenTelemetry SDKs. */
const MAX_LINKS = 128;

/**
 * Creates spans by the messaging conventions of OpenTelemetry: `create` when a message is written, `send` when it is
 * sent to the broker, `process` when it is handled. Without tracing every span is the silent span.
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

  /** Returns the active span, of this library or of the caller. */
  currentSpan(): Span {
    return this.#tracing?.active() ?? silentSpan;
  }

  /** Starts the span of a new message. The message carries its traceparent, so that later spans join the trace. */
  create(message: SpanMessage, caused: string | undefined, said: string | undefined): Span {
    return this.#begin("create", "producer", message.topic, {
      parent: said ?? this.currentSpan().traceparent ?? caused,
      attributes: messageAttributes(message),
    });
  }

  /** Starts the spans of one send: one in the trace of each message, and one for the batch if it has several. */
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

  /** Starts the span of a handler. Spans started by the handler become its children. */
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

  /** Starts the span of a batch of messages, in the trace of `within` or in a new trace. */
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

  /** Starts the span of a request that waits for its reply. */
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

  /** Starts the span of a saga transition, in the trace of the instance. */
  transition(saga: SpanSaga, attributes: SpanAttributes): Span {
    return this.#internal(`transition ${saga.type}`, this.#startSagaSpan(saga, attributes));
  }

  /** Starts the span of a local step or its compensation. */
  step(saga: SpanSaga, step: string, attributes: SpanAttributes): Span {
    const name = step.replace(/@.*/, ""); // iterations of a repeated step share a name
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

/** The spans of one send: one for each message, and one for the batch. */
export interface SendSpans {
  readonly each: readonly Span[];
  readonly trip: Span;
}

const silentSend: SendSpans = { each: [], trip: silentSpan };

/** Ends the spans of a send. `failureOf` returns the error of a message, undefined if it was sent. */
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

/** Describes an error for a span. The caller must have removed personal data from it. */
export function spanFailure(error: Error): SpanFailure {
  return {
    type: failureType(error),
    message: error.message.slice(0, MAX_TEXT_LENGTH),
    stack: error.stack?.slice(0, MAX_STACK_LENGTH),
  };
}

/** Returns the code or class name of an error without its message, which may contain personal data. */
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
