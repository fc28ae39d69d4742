import type { TelemetryContext, TelemetryEvents } from "../telemetry/index.ts";

/** Describes a dead letter without its payload. */
export interface DeadLetterNotice {
  readonly service: string;
  /** Whether sending or handling failed. */
  readonly origin: "outbox" | "consumer";
  /** Null for a dead letter of the outbox. */
  readonly consumer: string | null;
  readonly messageId: string;
  readonly type: string;
  readonly topic: string;
  readonly reason: string;
  /** The text of the error. It may quote data, so it is never posted to the webhook. */
  readonly error: string;
  readonly traceId: string | null;
  /** ISO 8601, from this process's clock. */
  readonly at: string;
}

const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-/;

export function toNotice(
  service: string,
  fields: TelemetryEvents["dead_letter.buried"],
  context: TelemetryContext | undefined,
  wallMs: number,
): DeadLetterNotice {
  const { origin, consumer, id, type, topic, reason, error } = fields;
  const traceId = TRACEPARENT.exec(context?.traceparent ?? "")?.[1] ?? null;
  const at = new Date(wallMs).toISOString();
  return { service, origin, consumer, messageId: id, type, topic, reason, error, traceId, at };
}
