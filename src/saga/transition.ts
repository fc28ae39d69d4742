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
  readonly plain: TransitionColumns;
  readonly parts: TransitionJson;
}

interface TransitionColumns {
  readonly id: string;
  readonly version: number;
  readonly status: SagaStatus;
  readonly step: string | undefined;
  readonly waits: string | undefined;
  readonly since: number | undefined;
  readonly error: string | undefined;
  readonly retries: number;
  readonly due: number | null;
  readonly release: boolean;
  readonly cause: string;
  readonly actor: string | null;
  /** Steps of the incident, if the transition opens one. */
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
  const stateText = JSON.stringify(state); // results, events and errors were checked before they entered the state
  const bytes = bringsData(before, input) ? Buffer.byteLength(stateText) : 0;
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

/** A transition as a JSON object for `save`. Values that are JSON text are inserted without encoding them again. */
export function toJsonText({
  plain,
  parts: { state, lines, input, metadata, oldState, newState },
}: Transition): string {
  return (
    JSON.stringify(plain).slice(0, -1) +
    part("state", state) +
    part("lines", lines) +
    part("input", input) +
    part("metadata", metadata) +
    part("oldState", oldState) +
    part("newState", newState) +
    "}"
  );
}

function part(name: string, text: string | null): string {
  return text === null ? "" : `,"${name}":${text}`;
}

/** The history lines of a transition. A transition that only sends a command again gets a line, too. */
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
  // encodeJson throws on characters that PostgreSQL cannot store. They always appear as a \u escape.
  return text.includes("\\u") ? encodeJson(lines) : text;
}

// A trigger finds attachments in a plain state. It cannot read an encrypted one, so their keys are listed.
function listAttachmentKeys(...texts: readonly string[]): readonly string[] | undefined {
  const keys = texts.flatMap(findAttachments).map(({ $attachment: { key } }) => key);
  return keys.length === 0 ? undefined : keys;
}

// The size limit applies to inputs that bring data. It must not keep a saga from failing or being compensated.
function bringsData({ state }: LoadedInstance, input: SagaInput): boolean {
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
  const look = (effort: Effort): void => {
    if (effort.error !== undefined && (latest === undefined || atMs(effort) > atMs(latest))) latest = effort;
  };
  for (const record of Object.values(records)) {
    look(record);
    if (record.undo !== undefined) look(record.undo);
  }
  return latest?.error;
}

function atMs({ endedAtMs, startedAtMs }: Effort): number {
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
 * The parts of the state that a transition changed, before and after it, as JSON for the audit log. Both are nested like
 * the state; a value that did not exist is null. Null if the state did not change. May hold personal data, like the input.
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

/** A value that changed, as a leaf of the tree of changes. */
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

function matchInputData(inputData: unknown): Test {
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

type Test = (value: unknown) => boolean;

function diffValues(before: unknown, after: unknown, isBrought: Test): ChangeTree | undefined {
  if (before === after) return undefined;
  if (!isNested(before) || !isNested(after) || shrinks(before, after)) {
    if (before === undefined || after === undefined || !sameText(before, after)) {
      return new ChangedValue(before ?? null, replaceInputData(after ?? null, isBrought));
    }
    return undefined;
  }
  let changed: Record<string, ChangeTree> | undefined;
  for (const key of Object.keys(before)) {
    const part = diffValues(before[key], after[key], isBrought);
    if (part !== undefined) (changed ??= {})[key] = part;
  }
  for (const key of Object.keys(after)) {
    if (after[key] === undefined || Object.hasOwn(before, key)) continue;
    const part = diffValues(undefined, after[key], isBrought);
    if (part !== undefined) (changed ??= {})[key] = part;
  }
  return changed;
}

// The result of a new record is one level down.
function replaceInputData(value: unknown, isBrought: Test): unknown {
  if (isBrought(value)) return FROM_INPUT;
  if (!isNested(value) || Array.isArray(value) || !Object.values(value).some(isBrought)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, isBrought(inner) ? FROM_INPUT : inner]),
  );
}

function isNested(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

function shrinks(before: object, after: object): boolean {
  if (Array.isArray(before) !== Array.isArray(after)) return true;
  return Array.isArray(before) && Array.isArray(after) && after.length < before.length;
}

function sameText(before: unknown, after: unknown): boolean {
  return JSON.stringify(before) === JSON.stringify(after);
}
