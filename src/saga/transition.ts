import { SagaboxError } from "../errors/index.ts";
import { encodeJson, findAttachments } from "../message/index.ts";
import type { Change, Decision } from "./decision.ts";
import type { SagaDefinition } from "./definition.ts";
import type { SagaInput } from "./input.ts";
import { type Cause, findActor, findReason, type LoadedInstance } from "./saga-store.ts";
import { type Effort, hasEnded, type SagaState, type SagaStatus } from "./state.ts";
import { ENCRYPTED_TEXT, encryptText } from "./subject-cipher.ts";
import { nextDueMs, waitingFor } from "./timers.ts";

/** The row values that one decision writes for its instance. */
export interface Transition {
  /** Id of the instance. */
  readonly id: string;
  /** Values that are encoded as JSON when the transition is saved. */
  readonly plain: TransitionColumns;
  /** Values that are JSON text already. They are encrypted if the instance has a data subject. */
  readonly parts: TransitionJson;
}

interface TransitionColumns {
  readonly id: string;
  /** Version of the instance before the transition. */
  readonly version: number;
  readonly status: SagaStatus;
  /** The step that the instance waits for. */
  readonly step: string | undefined;
  /** Describes for operators what the instance waits for. */
  readonly waits: string | undefined;
  /** When the wait began, in milliseconds of the database clock. */
  readonly since: number | undefined;
  readonly error: string | undefined;
  readonly retries: number;
  /** When the earliest timer is due, in milliseconds of the database clock. Null without timers. */
  readonly due: number | null;
  /** Releases the claim in the same statement. */
  readonly release: boolean;
  readonly cause: string;
  readonly actor: string | null;
  /** Paths of the steps in the incident, if the transition opens one. */
  readonly steps: readonly string[] | undefined;
  readonly incident: string | undefined;
  readonly resolution: string | undefined;
  readonly attachments: readonly string[] | undefined;
}

/** Columns whose values are JSON text. */
type TransitionJson = Readonly<
  Record<"state" | "lines" | "input" | "metadata" | "oldState" | "newState", string | null>
>;

interface TransitionOptions {
  /** Releases the claim in the same statement. */
  readonly release: boolean;
  readonly maxStateBytes: number;
}

/**
 * Computes the row values that a decision writes. Throws SAGA_STATE_TOO_LARGE if the input adds data and the new state is
 * larger than `maxStateBytes`.
 */
export function buildTransition(
  definition: SagaDefinition,
  before: LoadedInstance,
  decision: Decision,
  { cause, input }: Cause,
  { release, maxStateBytes }: TransitionOptions,
): Transition {
  const { status, state, effects } = decision;
  const waits = waitingFor(definition, state);
  const opened = effects.find((effect) => effect.kind === "open incident");
  const closed = effects.find((effect) => effect.kind === "close incident");
  const stateText = JSON.stringify(state); // storable: results, events and errors were checked before
  const bytes = addsData(before, input) ? Buffer.byteLength(stateText) : 0;
  if (bytes > maxStateBytes) throw tooLarge(before.id, bytes, maxStateBytes);
  const { id, seal } = before;
  const version = before.version + 1;
  const hideError = (error: string | undefined): string | undefined =>
    error === undefined || seal === undefined ? error : ENCRYPTED_TEXT;
  const encrypt = (text: string | null, fieldPath: string): string | null =>
    encryptText(seal, text, id, [fieldPath, version]);
  const plain = {
    id,
    version: before.version,
    status,
    step: waits?.step,
    waits: waits?.what,
    since: waits?.sinceMs,
    error: hideError(findLastError(state)),
    retries: countRetries(state),
    due: nextDueMs(state, hasEnded(status)),
    release,
    cause,
    actor: findActor(input),
    steps: opened?.stepPaths,
    incident: hideError(opened?.error),
    resolution: closed?.resolution,
    attachments: seal === undefined ? undefined : listAttachmentKeys(JSON.stringify(before.input), stateText),
  };
  const changes = describeChanges(before.state, state, input);
  const parts = {
    state: encrypt(stateText, "state"),
    lines: historyLinesText(decision, input, (note) => encrypt(note, "note")),
    input: encrypt(JSON.stringify(input), "cause"),
    metadata: encrypt(decision.drawn === undefined ? null : JSON.stringify(decision.drawn), "metadata"),
    oldState: encrypt(changes.oldState, "old_state"),
    newState: encrypt(changes.newState, "new_state"),
  };
  return { id, plain, parts };
}

/** Formats a transition as a JSON object for `save`. Values that are JSON text are inserted without encoding them again. */
export function toJsonText({
  plain,
  parts: { state, lines, input, metadata, oldState, newState },
}: Transition): string {
  return (
    JSON.stringify(plain).slice(0, -1) +
    formatMember("state", state) +
    formatMember("lines", lines) +
    formatMember("input", input) +
    formatMember("metadata", metadata) +
    formatMember("oldState", oldState) +
    formatMember("newState", newState) +
    "}"
  );
}

function formatMember(name: string, text: string | null): string {
  return text === null ? "" : `,"${name}":${text}`;
}

/** Returns the history lines of a transition. If nothing changed, a command was sent again, and one line notes that. */
export function listHistoryLines(changes: readonly Change[]): readonly Change[] {
  return changes.length > 0 ? changes : [{ event: "noted", note: "tried again" }];
}

function historyLinesText(
  { changes }: Decision,
  input: SagaInput,
  encryptNote: (note: string) => string | null,
): string {
  const reason = findReason(input) ?? undefined;
  const lines = listHistoryLines(changes).map(({ event, stepPath, from, to, note }, index) => ({
    nr: index + 1,
    event,
    stepPath,
    from,
    to,
    note: note === undefined ? undefined : encryptNote(note),
    reason: index > 0 ? undefined : reason,
  }));
  const text = JSON.stringify(lines);
  // JSON.stringify writes characters that PostgreSQL cannot store as \u escapes. encodeJson throws on those characters.
  return text.includes("\\u") ? encodeJson(lines) : text;
}

// A database trigger finds the attachments in an unencrypted state. For an encrypted state it needs a list of their keys.
function listAttachmentKeys(...texts: readonly string[]): readonly string[] | undefined {
  const keys = texts.flatMap(findAttachments).map(({ $attachment: { key } }) => key);
  return keys.length === 0 ? undefined : keys;
}

// The size limit applies only to inputs that add data, so it never prevents a saga from failing or being compensated.
function addsData({ state }: LoadedInstance, input: SagaInput): boolean {
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

function findLastError({ records, mismatches }: SagaState): string | undefined {
  const [mismatch] = Object.values(mismatches ?? {});
  if (mismatch !== undefined) return mismatch;
  let latest: Effort | undefined;
  const consider = (effort: Effort): void => {
    if (effort.error !== undefined && (latest === undefined || lastChangeMs(effort) > lastChangeMs(latest)))
      latest = effort;
  };
  for (const record of Object.values(records)) {
    consider(record);
    if (record.undo !== undefined) consider(record.undo);
  }
  return latest?.error;
}

function lastChangeMs({ endedAtMs, startedAtMs }: Effort): number {
  return endedAtMs ?? startedAtMs;
}

function countRetries({ records }: SagaState): number {
  let sum = 0;
  for (const { attempt } of Object.values(records)) sum += attempt - 1;
  return sum;
}

function tooLarge(id: string, bytes: number, limit: number): SagaboxError {
  return new SagaboxError(
    "SAGA_STATE_TOO_LARGE",
    `The state of saga ${id} would have ${bytes} bytes; ${limit} are allowed. Keep large results elsewhere and return a reference.`,
  );
}

/** Placeholder for a value that is already stored in the `input` column of the same history line. */
const FROM_INPUT = { $from: "input" };

/**
 * Returns the changed parts of the state, before and after a transition, as JSON for the audit log. Both are nested like
 * the state. A value that did not exist is null, and data of the input is replaced by a placeholder. Both are null if the
 * state did not change. They may hold personal data, like the input.
 */
export function describeChanges(before: SagaState, after: SagaState, input: SagaInput): StateChanges {
  const changed = diffValues(before, after, matchInputData(readInputData(input)));
  if (changed === undefined) return { oldState: null, newState: null };
  return {
    oldState: JSON.stringify(pickSide(changed, "before")),
    newState: JSON.stringify(pickSide(changed, "after")),
  };
}

export interface StateChanges {
  readonly oldState: string | null;
  readonly newState: string | null;
}

/** A leaf of the change tree: one value before and after the transition. */
class ChangedValue {
  readonly before: unknown;
  readonly after: unknown;

  constructor(before: unknown, after: unknown) {
    this.before = before;
    this.after = after;
  }
}

type ChangeTree = ChangedValue | { readonly [key: string]: ChangeTree };

function pickSide(tree: ChangeTree, side: "before" | "after"): unknown {
  if (tree instanceof ChangedValue) return tree[side];
  return Object.fromEntries(Object.entries(tree).map(([key, inner]) => [key, pickSide(inner, side)]));
}

// Returns a test for values that equal the data of the input. Only objects and arrays are tested.
function matchInputData(inputData: unknown): Predicate {
  if (!isNested(inputData)) return () => false;
  let text: string | undefined;
  return (value) => {
    if (value === inputData) return true;
    if (!isNested(value) || Array.isArray(value) !== Array.isArray(inputData)) return false;
    return JSON.stringify(value) === (text ??= JSON.stringify(inputData));
  };
}

function readInputData(input: SagaInput): unknown {
  switch (input.kind) {
    case "reply":
    case "worked":
      return input.outcome.kind === "done" ? input.outcome.result : undefined;
    case "event":
      return input.data;
    case "child":
      return input.results;
    case "settle":
      return input.result;
    default:
      return undefined;
  }
}

type Predicate = (value: unknown) => boolean;

function diffValues(before: unknown, after: unknown, isInputData: Predicate): ChangeTree | undefined {
  if (before === after) return undefined;
  if (!isNested(before) || !isNested(after) || mustReplace(before, after)) {
    if (before === undefined || after === undefined || !hasSameJson(before, after)) {
      return new ChangedValue(before ?? null, replaceInputData(after ?? null, isInputData));
    }
    return undefined;
  }
  let changed: Record<string, ChangeTree> | undefined;
  for (const key of Object.keys(before)) {
    const change = diffValues(before[key], after[key], isInputData);
    if (change !== undefined) (changed ??= {})[key] = change;
  }
  for (const key of Object.keys(after)) {
    if (after[key] === undefined || Object.hasOwn(before, key)) continue;
    const change = diffValues(undefined, after[key], isInputData);
    if (change !== undefined) (changed ??= {})[key] = change;
  }
  return changed;
}

// Replaces the value itself, or a value one level down: a new step record holds the result of its step.
function replaceInputData(value: unknown, isInputData: Predicate): unknown {
  if (isInputData(value)) return FROM_INPUT;
  if (!isNested(value) || Array.isArray(value) || !Object.values(value).some(isInputData)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, isInputData(inner) ? FROM_INPUT : inner]),
  );
}

function isNested(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

// The change tree cannot express a removed array element, or a change between array and object.
function mustReplace(before: object, after: object): boolean {
  if (Array.isArray(before) !== Array.isArray(after)) return true;
  return Array.isArray(before) && Array.isArray(after) && after.length < before.length;
}

function hasSameJson(before: unknown, after: unknown): boolean {
  return JSON.stringify(before) === JSON.stringify(after);
}
