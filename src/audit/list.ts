import { SagaboxError } from "../errors/index.ts";
import type { Json } from "../message/index.ts";
import { flag, oneOf, rejectUnknownKeys, text, wholeNumber } from "../options/index.ts";
import { explainPostgresError, quoteSchema, type Param, type Queryable } from "../storage/index.ts";
import type { AuditOutcome } from "./entry.ts";
import { listStatement, type ListCondition, type LogName } from "./statements.ts";

export interface AuditFilter {
  /** `saga`: transitions of sagas. `action`: all other actions. Default: both. */
  readonly log?: LogName;
  /** True: leave out saga transitions that no user caused. Default false. */
  readonly people?: boolean;
  readonly actor?: string;
  /** `dead_letter.replay`, or `saga.` and the kind of transition. */
  readonly action?: string;
  readonly sagaId?: string;
  readonly target?: { readonly kind: string; readonly id?: string };
  readonly traceId?: string;
  readonly outcome?: AuditOutcome;
  /** Only entries written at this time or later. */
  readonly from?: Date;
  /** Only entries written before this time. */
  readonly to?: Date;
  /** Upper bound for the result, 1 to 10,000. Default 50. */
  readonly limit?: number;
  /** Only entries older than this one: the `cursor` of the last entry of the previous page. */
  readonly after?: string;
}

/** An entry of either log. */
export interface AuditLine {
  readonly log: LogName;
  readonly id: string;
  readonly at: string;
  /** Null if no user caused the entry, but a message, a timer or a worker. */
  readonly actor: string | null;
  readonly action: string;
  readonly target: { readonly kind: string; readonly id: string | null };
  readonly reason: string | null;
  readonly traceId: string | null;
  /** `refused` for an input that a saga ignored. */
  readonly outcome: AuditOutcome;
  readonly errorCode: string | null;
  readonly before: Json | null;
  readonly after: Json | null;
  /** The saga transition; null for entries of the action log. */
  readonly saga: SagaPart | null;
  readonly cursor: string;
}

export interface SagaPart {
  readonly version: number;
  readonly step: string | null;
  readonly from: string | null;
  readonly to: string | null;
  readonly note: string | null;
  readonly cause: string;
  readonly input: Json | null;
  /** The parts of the state that the transition changed, before it. */
  readonly oldState: Json | null;
  /** The parts of the state that the transition changed, after it. */
  readonly newState: Json | null;
}

interface LineRow {
  readonly log: LogName;
  readonly xid: string;
  readonly id: string;
  readonly at: string;
  readonly actor: string | null;
  readonly action: string;
  readonly target_kind: string;
  readonly target_id: string | null;
  readonly trace_id: string | null;
  readonly input: string | null;
  readonly oldState: string | null;
  readonly newState: string | null;
  readonly before: string | null;
  readonly after: string | null;
  readonly version: number | null;
  readonly step: string | null;
  readonly old_status: string | null;
  readonly new_status: string | null;
  readonly note: string | null;
  readonly cause: string | null;
  readonly reason: string | null;
  readonly outcome: AuditOutcome;
  readonly error_code: string | null;
}

const KNOWN = "log people actor action sagaId target traceId outcome from to limit after".split(" ");

/** Lists entries of both logs, newest first. Throws OPTIONS_INVALID for an invalid filter. */
export async function listAudit(
  database: Queryable,
  schema: string,
  filter: AuditFilter = {},
): Promise<readonly AuditLine[]> {
  const quoted = quoteSchema(schema);
  const { logs, conditions, params } = toConditions(filter);
  if (logs.length === 0) return [];
  try {
    const { rows } = await database.run<LineRow>(listStatement(quoted, logs, conditions), params);
    return rows.map(toAuditLine);
  } catch (error) {
    throw explainPostgresError(error, quoted);
  }
}

/** Returns the logs that can contain matching entries, and the conditions for each. `$1` is the limit. Pure. */
export function toConditions(filter: AuditFilter): {
  readonly logs: readonly LogName[];
  readonly conditions: readonly ListCondition[];
  readonly params: readonly Param[];
} {
  checkFilter(filter);
  const {
    log,
    people,
    actor,
    action,
    sagaId,
    target,
    traceId,
    outcome,
    from,
    to,
    limit = 50,
    after,
  } = filter;
  const params: Param[] = [limit];
  const conditions: ListCondition[] = [];
  const logs = new Set<LogName>(log === undefined ? ["saga", "action"] : [log]);
  const param = (value: Param): string => `$${params.push(value)}`;
  const both = (sql: string): void => {
    conditions.push({ log: "saga", sql }, { log: "action", sql });
  };
  // Adds a condition to each log. `saga` is null if the saga log cannot contain matching entries.
  const each = (value: string, saga: string | null, other: string): void => {
    if (saga === null) logs.delete("saga");
    const placeholder = param(value);
    if (saga !== null) conditions.push({ log: "saga", sql: saga.replaceAll("?", placeholder) });
    conditions.push({ log: "action", sql: other.replaceAll("?", placeholder) });
  };
  if (people === true) conditions.push({ log: "saga", sql: "row.user_id is not null" });
  if (actor !== undefined) each(actor, "row.user_id = ?::text", "row.actor = ?::text");
  if (action !== undefined) {
    each(
      action,
      action.startsWith("saga.") ? "row.event_type = substr(?::text, 6)" : null,
      "row.action = ?::text",
    );
  }
  if (target !== undefined) {
    const isSaga = target.kind === "saga" && target.id !== undefined;
    if (!isSaga) logs.delete("saga");
    conditions.push({ log: "action", sql: `row.target_kind = ${param(target.kind)}::text` });
    if (target.id !== undefined) each(target.id, isSaga ? SAGA : null, "row.target_id = ?::text");
  }
  if (sagaId !== undefined) each(sagaId, SAGA, "row.target_kind = 'saga' and row.target_id = ?::text");
  if (traceId !== undefined) each(traceId, TRACED, "row.trace_id = ?::text");
  if (outcome !== undefined) {
    if (outcome === "failed") logs.delete("saga");
    const is = outcome === "refused" ? "=" : "<>";
    each(outcome, `?::text is not null and row.event_type ${is} 'ignored'`, "row.outcome = ?::text");
  }
  if (from !== undefined) both(`row.timestamp >= ${param(from.toISOString())}::text::timestamptz`);
  if (to !== undefined) both(`row.timestamp < ${param(to.toISOString())}::text::timestamptz`);
  if (after !== undefined) {
    const [xid = "", name = "", id = ""] = after.split(".");
    const cursor = `(${param(xid)}::text::xid8, ${param(id)}::text::bigint)`;
    conditions.push({ log: "saga", sql: `(row.xid, row.id) < ${cursor}` });
    conditions.push({ log: "action", sql: `(row.xid, row.id) ${name === "saga" ? "<=" : "<"} ${cursor}` });
  }
  return { logs: [...logs], conditions: conditions.filter((one) => logs.has(one.log)), params };
}

const SAGA = "row.saga_id = ?::text";
// Only the first entry of a saga is indexed by trace id; the other entries of the saga have the same trace id.
const TRACED = `row.saga_id = any(array(
  select first.saga_id from {schema}.saga_audit_log as first where first.version = 1 and first.trace_id = ?::text))`;

function checkFilter(filter: AuditFilter): void {
  rejectUnknownKeys("audit.list", filter, KNOWN);
  const { log, people, outcome, from, to, limit, after, target } = filter;
  if (people !== undefined) flag("audit.list: people", people);
  if (log !== undefined) oneOf("audit.list: log", log, ["saga", "action"]);
  if (outcome !== undefined) oneOf("audit.list: outcome", outcome, ["done", "refused", "failed"]);
  if (limit !== undefined) wholeNumber("audit.list: limit", limit, { min: 1, max: 10_000 });
  if (after !== undefined) {
    text("audit.list: after", after, { pattern: /^\d{1,20}\.(saga|action)\.\d{1,19}$/ });
  }
  if (target !== undefined) {
    rejectUnknownKeys("audit.list: target", target, ["kind", "id"]);
    text("audit.list: target.kind", target.kind);
  }
  for (const [name, value] of Object.entries({ from, to })) {
    if (value !== undefined && (!(value instanceof Date) || Number.isNaN(value.getTime()))) {
      throw new SagaboxError("OPTIONS_INVALID", `audit.list: ${name} must be a date.`);
    }
  }
  for (const name of ["actor", "action", "sagaId", "traceId"] as const) {
    if (filter[name] !== undefined) text(`audit.list: ${name}`, filter[name], { max: 500 });
  }
}

function toAuditLine(row: LineRow): AuditLine {
  const input = parseJsonOrNull(row.input);
  return {
    log: row.log,
    id: row.id,
    at: row.at,
    actor: row.actor,
    action: row.action,
    target: { kind: row.target_kind, id: row.target_id },
    reason: row.reason,
    traceId: row.trace_id,
    outcome: row.outcome,
    errorCode: row.error_code,
    before: parseJsonOrNull(row.before),
    after: parseJsonOrNull(row.after),
    saga:
      row.version === null
        ? null
        : {
            version: row.version,
            step: row.step,
            from: row.old_status,
            to: row.new_status,
            note: row.note,
            cause: row.cause ?? "",
            input,
            oldState: parseJsonOrNull(row.oldState),
            newState: parseJsonOrNull(row.newState),
          },
    cursor: `${row.xid}.${row.log}.${row.id}`,
  };
}

function parseJsonOrNull(value: string | null): Json | null {
  return value === null ? null : (JSON.parse(value) as Json);
}
