import {
  milliseconds,
  oneOf,
  rejectUnknownKeys,
  text,
  wholeNumber,
  type Duration,
} from "../../options/index.ts";
import { sagaStatuses, type SagaStatus } from "../../saga/index.ts";
import type { Param } from "../../storage/index.ts";
import type { SagaAdmin } from "./saga-admin.ts";
import { toSummary, type SagaSummary, type SummaryRow } from "./saga-summary.ts";
import type { FilterName } from "./statements.ts";

export interface SagaFilter {
  readonly type?: string;
  readonly status?: SagaStatus;
  /** The step it stands at; without a round, that step in any. */
  readonly step?: string;
  /** The key of the instance. */
  readonly correlationId?: string;
  /** The correlation id it shares with the messages around it. */
  readonly messageCorrelationId?: string;
  /** Only those that started longer ago. */
  readonly olderThan?: Duration | number;
  /** At most this many, newest first; up to 10,000. Default 50. */
  readonly limit?: number;
  /** Only those that started before this one: the last id of the page before. */
  readonly after?: string;
}

/** Ten years, as for the times in definitions. */
export const MAX_AGE_MS = 3_650 * 86_400_000;
const TEXT_KEYS = ["type", "step", "correlationId", "messageCorrelationId", "after"] as const;
const KNOWN = [...TEXT_KEYS, "status", "olderThan", "limit"];

/** Instances, newest first. */
export async function listSagas(
  { database, sql }: SagaAdmin,
  filter: SagaFilter = {},
): Promise<readonly SagaSummary[]> {
  rejectUnknownKeys("sagas.list", filter, KNOWN);
  const { limit = 50, status, olderThan } = filter;
  wholeNumber("sagas.list: limit", limit, { min: 1, max: 10_000 });
  const names: FilterName[] = [];
  const params: Param[] = [limit];
  const add = (name: FilterName, value: Param): void => {
    names.push(name);
    params.push(value);
  };
  for (const name of TEXT_KEYS) {
    const value = filter[name];
    if (value !== undefined) add(name, text(`sagas.list: ${name}`, value, { max: 1_000 }));
  }
  if (status !== undefined) add("status", oneOf("sagas.list: status", status, sagaStatuses));
  if (olderThan !== undefined) {
    add("olderThanMs", milliseconds("sagas.list: olderThan", olderThan, { max: MAX_AGE_MS }));
  }
  const { rows } = await database.run<SummaryRow>(sql.listSagas(names), params);
  return rows.map(toSummary);
}
