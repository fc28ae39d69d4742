import { flag, rejectUnknownKeys, text, wholeNumber } from "../../options/index.ts";
import type { SagaAdmin } from "./saga-admin.ts";

/** Something a person has to decide, or had to. */
export interface Incident {
  readonly id: string;
  readonly sagaId: string;
  readonly type: string;
  readonly correlationId: string;
  /** The steps that failed for good. */
  readonly steps: readonly string[];
  readonly error: string;
  readonly openedAt: string;
  readonly closedAt: string | null;
  /** The status it went to when it was closed. */
  readonly resolution: string | null;
}

export interface IncidentFilter {
  /** True for open ones only, false for closed ones only. Default: open ones. */
  readonly open?: boolean | "both";
  readonly type?: string;
  readonly sagaId?: string;
  /** At most this many, newest first; up to 10,000. Default 50. */
  readonly limit?: number;
  /** Only those older than this one: the last id of the page before. */
  readonly after?: string;
}

interface IncidentRow extends Omit<Incident, "steps"> {
  readonly steps: string;
}

export async function listIncidents(
  { database, sql }: SagaAdmin,
  filter: IncidentFilter = {},
): Promise<readonly Incident[]> {
  rejectUnknownKeys("sagas.incidents", filter, ["open", "type", "sagaId", "limit", "after"]);
  const { open = true, type = null, sagaId = null, limit = 50, after = null } = filter;
  wholeNumber("sagas.incidents: limit", limit, { min: 1, max: 10_000 });
  if (open !== "both") flag("sagas.incidents: open", open);
  if (after !== null) text("sagas.incidents: after", after, { pattern: /^\d{1,18}$/ });
  const params = [limit, open === "both" ? null : open, type, sagaId, after];
  const { rows } = await database.run<IncidentRow>(sql.incidents, params);
  return rows.map((row) => ({ ...row, steps: JSON.parse(row.steps) as string[] }));
}
