import type { TelemetryContext, TelemetryEvents } from "../telemetry/index.ts";

/** A message that was given up, described without anything it carried. */
export interface DeadLetterNotice {
  readonly service: string;
  /** Whether it could not be sent, or could not be handled. */
  readonly origin: "outbox" | "consumer";
  /** Null when it died in the outbox. */
  readonly consumer: string | null;
  readonly messageId: string;
  readonly type: string;
  readonly topic: string;
  readonly reason: string;
  /** What went wrong, as the error said it. It may quote data: it stays in the process. */
  readonly error: string;
  readonly traceId: string | null;
  /** ISO 8601, by this process's clock. */
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
