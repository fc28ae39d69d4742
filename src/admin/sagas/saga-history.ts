import type { Json } from "../../message/index.ts";
import { rejectUnknownKeys, text, wholeNumber } from "../../options/index.ts";
import { decryptText, findCipher, type SagaVault, type FieldPath } from "../../saga/index.ts";
import { notFound, type SagaAdmin } from "./saga-admin.ts";

/** One line of the audit log: what happened, what or who caused it. */
export interface HistoryLine {
  readonly id: string;
  readonly at: string;
  /** The transition it belongs to. */
  readonly version: number;
  readonly event: "state_changed" | "step_executed" | "compensated" | "failed" | "noted" | "ignored";
  readonly step: string | null;
  readonly from: string | null;
  readonly to: string | null;
  readonly note: string | null;
  /** A message, the clock, a worker, a child, a person. */
  readonly cause: string;
  /** The person, where it was one. */
  readonly actor: string | null;
  /** Why they did it, on the first line of a transition. */
  readonly reason: string | null;
  readonly traceId: string | null;
  /** What happened, on the first line of a transition. */
  readonly input: Json | null;
  /** The parts of the state that it changed, before it, on the first line of a transition. */
  readonly oldState: Json | null;
  /** The parts of the state that it changed, after it, on the first line of a transition. */
  readonly newState: Json | null;
}

export interface HistoryOptions {
  /** At most this many, oldest first; up to 10,000. Default 1,000. */
  readonly limit?: number;
  /** Only lines behind this one: the last id of the page before. */
  readonly after?: string;
}

interface LineRow extends Omit<HistoryLine, "input" | "oldState" | "newState"> {
  readonly input: string | null;
  readonly oldState: string | null;
  readonly newState: string | null;
}

export async function readSagaHistory(
  { database, sql, vault }: SagaAdmin,
  id: string,
  options: HistoryOptions = {},
): Promise<readonly HistoryLine[]> {
  rejectUnknownKeys("sagas.history", options, ["limit", "after"]);
  const { limit = 1_000, after = "0" } = options;
  wholeNumber("sagas.history: limit", limit, { min: 1, max: 10_000 });
  text("sagas.history: after", after, { pattern: /^\d{1,18}$/ });
  const { rows } = await database.run<LineRow>(sql.history, [String(id), after, limit]);
  if (rows.length === 0 && (await database.run(sql.exists, [String(id)])).rows.length === 0) {
    throw notFound(String(id));
  }
  const lines: HistoryLine[] = [];
  for (const row of rows) lines.push(toHistoryLine(await decryptLine(vault, String(id), row)));
  return lines;
}

// What was about a person is opened where there is a key, and marked where there is none.
async function decryptLine(vault: SagaVault | undefined, sagaId: string, row: LineRow): Promise<LineRow> {
  const seal = await findCipher(vault, row.input ?? row.note ?? row.newState);
  if (seal === undefined) return row;
  const show = (text: string | null, hidden: (as: string) => string, place: FieldPath): string | null => {
    if (text === null || !text.startsWith('{"$sealed"')) return text;
    return typeof seal === "string" ? hidden(`[${seal}]`) : decryptText(seal, text, sagaId, place);
  };
  const asText = (as: string): string => as;
  const { version, cause, event } = row;
  return {
    ...row,
    note: show(row.note, asText, ["note", version]),
    input: show(row.input, JSON.stringify, event === "ignored" ? ["ignored", cause] : ["cause", version]),
    oldState: show(row.oldState, JSON.stringify, ["old_state", version]),
    newState: show(row.newState, JSON.stringify, ["new_state", version]),
  };
}

function toHistoryLine(row: LineRow): HistoryLine {
  return {
    ...row,
    input: parseOrNull(row.input),
    oldState: parseOrNull(row.oldState),
    newState: parseOrNull(row.newState),
  };
}

function parseOrNull(text: string | null): Json | null {
  return text === null ? null : (JSON.parse(text) as Json);
}
