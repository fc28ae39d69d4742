import type { LaneRow } from "../lanes/index.ts";
import type { Observer, TelemetryContext } from "../telemetry/index.ts";
import type { DeadRow, FailedRow } from "./settler.ts";

/** What people hear of rows that did not get through. */
export function emitFailed(observer: Observer, failures: readonly FailedRow[]): void {
  for (const { row, delayMs, error } of failures) {
    const attempt = row.attempts + 1;
    observer.emit(
      "relay.failed",
      { ...messageNames(row), attempt, delayMs, reason: "rejected", error },
      telemetryContext(row),
    );
  }
}

export function emitDeadLettered(observer: Observer, deaths: readonly DeadRow[]): void {
  for (const { row, reason, errorMessage: error } of deaths) {
    observer.emit(
      "dead_letter.buried",
      { origin: "outbox", consumer: null, ...messageNames(row), reason, error },
      telemetryContext(row),
    );
  }
}

function messageNames({ messageId, type, topic }: LaneRow): { id: string; type: string; topic: string } {
  return { id: messageId, type, topic };
}

function telemetryContext({ message }: LaneRow): TelemetryContext {
  return { traceparent: message?.traceparent, sagaId: message?.sagaId };
}
