import type { LaneRow } from "../lanes/index.ts";
import type { Observer, TelemetryContext } from "../telemetry/index.ts";
import type { Dying, Failed } from "./settler.ts";

/** What people hear of rows that did not get through. */
export function tellFailed(observer: Observer, failures: readonly Failed[]): void {
  for (const { row, delayMs, error } of failures) {
    const attempt = row.attempts + 1;
    observer.tell(
      "relay.failed",
      { ...namesOf(row), attempt, delayMs, reason: "rejected", error },
      contextOf(row),
    );
  }
}

export function tellBuried(observer: Observer, deaths: readonly Dying[]): void {
  for (const { row, reason, errorMessage: error } of deaths) {
    observer.tell(
      "dead_letter.buried",
      { origin: "outbox", consumer: null, ...namesOf(row), reason, error },
      contextOf(row),
    );
  }
}

function namesOf({ messageId, type, topic }: LaneRow): { id: string; type: string; topic: string } {
  return { id: messageId, type, topic };
}

function contextOf({ message }: LaneRow): TelemetryContext {
  return { traceparent: message?.traceparent, sagaId: message?.sagaId };
}
