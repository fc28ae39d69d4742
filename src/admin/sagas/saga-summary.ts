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
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly completedAt: string | null;
}

export interface SummaryRow extends Omit<SagaSummary, "parent"> {
  readonly parentId: string | null;
  readonly parentStep: string | null;
}

export function toSummary({ parentId, parentStep, ...rest }: SummaryRow): SagaSummary {
  return { ...rest, parent: parentId === null ? null : { id: parentId, step: parentStep ?? "" } };
}
