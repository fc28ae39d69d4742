import { SagaboxError } from "../errors/index.ts";
import { attachmentsIn, encodeJson, type Json } from "../message/index.ts";
import { textArray, type Param, type Queryable } from "../storage/index.ts";
import type { SagaDefinition } from "./definition.ts";
import type { Change, Decision } from "./decision.ts";
import type { SagaInput } from "./input.ts";
import { changesText } from "./state-changes.ts";
import {
  openedText,
  sealedText,
  sealOf,
  SEALED_TEXT,
  type HiddenAs,
  type PersonSeal,
  type SagaVault,
} from "./sealing.ts";
import type { SagaState, SagaStatus, Snapshot } from "./state.ts";
import { hasEnded } from "./state.ts";
import type { SagaStatements } from "./statements.ts";
import { nextDueMs, waitingFor } from "./timers.ts";

/** An instance as it was read. */
export interface Loaded extends Snapshot {
  readonly type: string;
  readonly definitionVersion: number;
  readonly key: string;
  readonly version: number;
  readonly traceparent: string;
  readonly correlationId: string;
  readonly claims: number;
  /** The database's clock when it was read. */
  readonly nowMs: number;
  /** With which everything it holds is sealed, where it is about a person. */
  readonly seal?: PersonSeal | undefined;
}

export interface InstanceRow {
  readonly id: string;
  readonly type: string;
  readonly definition_version: number;
  readonly correlation_id: string;
  readonly status: SagaStatus;
  readonly input: string;
  readonly state: string;
  readonly version: number;
  readonly traceparent: string;
  readonly message_correlation_id: string;
  readonly parent_id: string | null;
  readonly parent_place: string | null;
  readonly claims: number;
  readonly now_ms: string | number;
}

/** The instance, or why it cannot be read. */
export async function openInstance(
  vault: SagaVault | undefined,
  row: InstanceRow,
  tx?: Queryable,
): Promise<Loaded | HiddenAs> {
  const seal = await sealOf(vault, row.state, tx);
  return typeof seal === "string" ? seal : loadedFrom(row, seal);
}

function loadedFrom(row: InstanceRow, seal?: PersonSeal): Loaded {
  const { id, version } = row;
  return {
    seal,
    id: row.id,
    type: row.type,
    definitionVersion: row.definition_version,
    key: row.correlation_id,
    status: row.status,
    // Our own text. What is in it was checked when it came, each part by itself: the whole may be deeper and larger.
    input: JSON.parse(openedText(seal, row.input, id, ["input"])) as Json,
    state: JSON.parse(openedText(seal, row.state, id, ["state", version])) as SagaState,
    version: row.version,
    traceparent: row.traceparent,
    correlationId: row.message_correlation_id,
    parent: row.parent_id === null ? null : { id: row.parent_id, place: row.parent_place ?? "" },
    claims: row.claims,
    nowMs: Number(row.now_ms),
  };
}

/** What caused a transition. */
export interface Cause {
  /** A message id, a timer, a person. */
  readonly cause: string;
  readonly input: SagaInput;
}

export interface SaveOptions {
  /** Gives the claim back in the same statement. */
  readonly release: boolean;
  readonly maxStateBytes: number;
}

/** The parameters of `save`, for one decision. */
export function saveParams(
  definition: SagaDefinition,
  before: Loaded,
  decision: Decision,
  { cause, input }: Cause,
  { release, maxStateBytes }: SaveOptions,
): Param[] {
  const { status, state, effects, changes } = decision;
  const waits = waitingFor(definition, state);
  const opened = effects.find((effect) => effect.kind === "open incident");
  const closed = effects.find((effect) => effect.kind === "close incident");
  const stateText = JSON.stringify(state); // results and events were checked when they came, errors when they were noted
  const bytes = bringsData(before, input) ? Buffer.byteLength(stateText) : 0;
  if (bytes > maxStateBytes) throw tooLarge(before.id, bytes, maxStateBytes);
  const { id, seal } = before;
  const version = before.version + 1;
  const hidden = (error: string | null): string | null =>
    error === null || seal === undefined ? error : SEALED_TEXT;
  const sealed = (text: string | null, ...place: (string | number)[]): string | null =>
    sealedText(seal, text, id, place);
  return [
    before.id,
    before.version,
    status,
    sealed(stateText, "state", version),
    waits?.step ?? null,
    waits?.what ?? null,
    waits?.sinceMs ?? null,
    hidden(lastErrorOf(state)),
    Object.values(state.records).reduce((sum, { attempt }) => sum + attempt - 1, 0),
    nextDueMs(state, hasEnded(status)),
    release,
    encodeJson(
      linesOf(changes).map((line, index) => {
        const note = sealed(line.note ?? null, "note", version);
        const why = index === 0 ? reasonOf(input) : null;
        return {
          nr: index + 1,
          ...line,
          ...(note === null ? {} : { note }),
          ...(why === null ? {} : { reason: why }),
        };
      }),
    ),
    cause,
    actorOf(input),
    sealed(JSON.stringify(input), "cause", version),
    opened === undefined ? null : textArray(opened.places),
    hidden(opened?.error ?? null),
    sealed(decision.drawn === undefined ? null : JSON.stringify(decision.drawn), "drawn", version),
    sealed(changesText(before.state, state, input), "changes", version),
    closed?.resolution ?? null,
    seal === undefined ? null : attachedKeys(JSON.stringify(before.input), stateText),
  ];
}

// The database finds by itself what a saga in clear holds; in a sealed one it sees nothing.
function attachedKeys(...texts: readonly string[]): string | null {
  const keys = texts.flatMap(attachmentsIn).map(({ $attachment: { key } }) => key);
  return keys.length === 0 ? null : textArray(keys);
}

// The limit is for what others put into the state. Nothing may keep a saga from failing, and from being undone.
function bringsData({ state }: Loaded, input: SagaInput): boolean {
  if (state.direction === "backward") return false;
  switch (input.kind) {
    case "start":
    case "event":
    case "settle":
    case "child":
      return true;
    case "reply":
    case "worked":
      return input.outcome.kind === "done";
    default:
      return false;
  }
}

/** What an instance has from its beginning on. */
export interface Birth {
  readonly definitionVersion: number;
  readonly traceId: string;
  /** Taken by the process that starts it, which then goes on with it at once. */
  readonly claim?: Claim | undefined;
}

export interface Claim {
  readonly worker: string;
  readonly leaseMs: number;
}

/** The parameters of `insert`, from those of `save`. */
export function insertParams(before: Loaded, birth: Birth, save: readonly Param[]): Param[] {
  const { id, type, key, input, traceparent, correlationId, parent, seal } = before;
  const [, , status, state, step, waits, since, error, retries, due, , ...rest] = save;
  const moving = [status, state, step, waits, since, error, retries, due, ...rest.slice(0, 8)];
  const { definitionVersion, traceId, claim } = birth;
  return [
    id,
    type,
    definitionVersion,
    key,
    sealedText(seal, encodeJson(input), id, ["input"]),
    traceId,
    traceparent,
    correlationId,
    parent?.id ?? null,
    parent?.place ?? null,
    ...moving.map((param) => param ?? null),
    claim?.worker ?? null,
    claim?.leaseMs ?? null,
    seal?.subject ?? null,
    save.at(-1) ?? null,
  ];
}

/** The lines of the history. No transition is without one, not even that which only sends a command again. */
export function linesOf(changes: readonly Change[]): readonly Change[] {
  return changes.length > 0 ? changes : [{ event: "noted", note: "tried again" }];
}

/** What the instance is after the decision was saved. */
export function after(before: Loaded, decision: Decision): Loaded {
  return {
    ...before,
    status: decision.status,
    state: decision.state,
    version: before.version + 1,
    claims: 0,
  };
}

export async function saved(tx: Queryable, sql: SagaStatements, params: readonly Param[]): Promise<boolean> {
  return (await tx.run(sql.save, params)).rows.length === 1;
}

/** The person behind an input, if there is one. */
export function actorOf(input: SagaInput): string | null {
  return "by" in input ? (input.by?.actor ?? null) : null;
}

/** Why that person did it. */
export function reasonOf(input: SagaInput): string | null {
  return "by" in input ? (input.by?.reason ?? null) : null;
}

/** JSON has no undefined; our own optional fields do. */
export function withoutUndefined(value: object): Json {
  return JSON.parse(JSON.stringify(value)) as Json;
}

function lastErrorOf({ records }: SagaState): string | null {
  const failed = Object.values(records)
    .flatMap((record) => [record, ...(record.undo === undefined ? [] : [record.undo])])
    .filter(({ error }) => error !== undefined)
    .sort((a, b) => (b.endedAtMs ?? b.startedAtMs) - (a.endedAtMs ?? a.startedAtMs));
  return failed[0]?.error ?? null;
}

function tooLarge(id: string, bytes: number, limit: number): SagaboxError {
  return new SagaboxError(
    "SAGA_STATE_TOO_LARGE",
    `The state of saga ${id} would have ${bytes} bytes; ${limit} are allowed. Keep large results elsewhere and return a reference.`,
  );
}
