import type { SagaStatus } from "../../saga/index.ts";

/** One instance, as a list shows it. Times are ISO 8601 in UTC. */
export interface SagaSummary {
  readonly id: string;
  readonly type: string;
  /** The version of the definition it began with and ends with. */
  readonly definitionVersion: number;
  /** Its key: there is one instance for each. */
  readonly correlationId: string;
  readonly status: SagaStatus;
  readonly currentStep: string | null;
  readonly waitsFor: string | null;
  readonly waitingSince: string | null;
  /** How many transitions it has made. */
  readonly version: number;
  readonly lastError: string | null;
  readonly retryCount: number;
  readonly traceId: string;
  /** The correlation id of the message that started it, and of everything it sends. */
  readonly messageCorrelationId: string;
  readonly parent: { readonly id: string; readonly step: string } | null;
  /** When somebody has to look at it again even if nothing comes. */
  readonly dueAt: string | null;
  readonly claimedBy: string | null;
  readonly claimedUntil: string | null;
  readonly startedAt: string;
  readonly updatedAt: string;
  readonly endedAt: string | null;
}

export interface SummaryRow {
  readonly id: string;
  readonly type: string;
  readonly definition_version: number;
  readonly correlation_id: string;
  readonly status: SagaStatus;
  readonly current_step: string | null;
  readonly waits_for: string | null;
  readonly waiting_since: string | null;
  readonly version: number;
  readonly last_error: string | null;
  readonly retry_count: number;
  readonly trace_id: string;
  readonly message_correlation_id: string;
  readonly parent_id: string | null;
  readonly parent_place: string | null;
  readonly due_at: string | null;
  readonly claimed_by: string | null;
  readonly claimed_until: string | null;
  readonly started_at: string;
  readonly updated_at: string;
  readonly ended_at: string | null;
}

export function toSummary(row: SummaryRow): SagaSummary {
  return {
    id: row.id,
    type: row.type,
    definitionVersion: row.definition_version,
    correlationId: row.correlation_id,
    status: row.status,
    currentStep: row.current_step,
    waitsFor: row.waits_for,
    waitingSince: row.waiting_since,
    version: row.version,
    lastError: row.last_error,
    retryCount: row.retry_count,
    traceId: row.trace_id,
    messageCorrelationId: row.message_correlation_id,
    parent: row.parent_id === null ? null : { id: row.parent_id, step: row.parent_place ?? "" },
    dueAt: row.due_at,
    claimedBy: row.claimed_by,
    claimedUntil: row.claimed_until,
    startedAt: row.started_at,
    updatedAt: row.updated_at,
    endedAt: row.ended_at,
  };
}
