import { encodeJson, type Json } from "../message/index.ts";
import { toArrayLiteral, type Param, type Queryable } from "../storage/index.ts";
import type { Decision } from "./decision.ts";
import type { SagaInput } from "./input.ts";
import {
  decryptText,
  encryptText,
  findCipher,
  type UnreadableReason,
  type SubjectCipher,
  type SagaVault,
} from "./subject-cipher.ts";
import type { SagaState, SagaStatus, Snapshot } from "./state.ts";
import type { Transition } from "./transition.ts";

/** An instance as it was read from the database. */
export interface LoadedInstance extends Snapshot {
  readonly type: string;
  readonly definitionVersion: number;
  readonly key: string;
  readonly version: number;
  readonly traceparent: string;
  readonly correlationId: string;
  readonly claims: number;
  /** The database clock when the instance was read, in milliseconds. */
  readonly nowMs: number;
  /** Encrypts the instance, if it has a data subject. */
  readonly seal?: SubjectCipher | undefined;
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
  readonly parent_step: string | null;
  readonly claims: number;
  readonly now_ms: string | number;
  /** Whether the instance has pending input. Only claim statements select it. */
  readonly has_input?: boolean;
}

/** Decrypts and parses an instance, or returns why it cannot be read. */
export async function openInstance(
  vault: SagaVault | undefined,
  row: InstanceRow,
  tx?: Queryable,
): Promise<LoadedInstance | UnreadableReason> {
  const seal = await findCipher(vault, row.state, tx);
  return typeof seal === "string" ? seal : toLoadedInstance(row, seal);
}

function toLoadedInstance(row: InstanceRow, seal?: SubjectCipher): LoadedInstance {
  const { id, version } = row;
  return {
    seal,
    id: row.id,
    type: row.type,
    definitionVersion: row.definition_version,
    key: row.correlation_id,
    status: row.status,
    // Written by sagabox from parts that were checked on arrival. The whole may exceed the limits for a single payload.
    input: JSON.parse(decryptText(seal, row.input, id, ["input"])) as Json,
    state: JSON.parse(decryptText(seal, row.state, id, ["state", version])) as SagaState,
    version: row.version,
    traceparent: row.traceparent,
    correlationId: row.message_correlation_id,
    parent: row.parent_id === null ? null : { id: row.parent_id, stepPath: row.parent_step ?? "" },
    claims: row.claims,
    nowMs: Number(row.now_ms),
  };
}

/** The input of a transition and its origin. */
export interface Cause {
  /** For the history: `message:<id>`, `clock`, `worker:<id>` and so on. */
  readonly cause: string;
  readonly input: SagaInput;
}

/** Values that are written only when an instance is inserted. */
export interface Birth {
  readonly definitionVersion: number;
  readonly traceId: string;
  /** Set if the worker that starts the instance also runs it. */
  readonly claim?: Claim | undefined;
}

export interface Claim {
  readonly worker: string;
  readonly leaseMs: number;
}

/** The parameters of `insert`, or of `insertFailed` if the first transition opens an incident. */
export function insertParams(before: LoadedInstance, birth: Birth, { plain, parts }: Transition): Param[] {
  const { id, type, key, input, traceparent, correlationId, parent, seal } = before;
  const { definitionVersion, traceId, claim } = birth;
  const { steps, incident } = plain;
  return [
    id,
    type,
    definitionVersion,
    key,
    encryptText(seal, encodeJson(input), id, ["input"]),
    traceId,
    traceparent,
    correlationId,
    parent?.id ?? null,
    parent?.stepPath ?? null,
    claim?.worker ?? null,
    claim?.leaseMs ?? null,
    seal?.subject ?? null,
    plain.status,
    parts.state,
    plain.step ?? null,
    plain.waits ?? null,
    plain.since ?? null,
    plain.error ?? null,
    plain.retries,
    plain.due,
    toTextArray(plain.attachments),
    plain.cause,
    plain.actor,
    parts.lines,
    parts.input,
    parts.metadata,
    parts.oldState,
    parts.newState,
    ...(incident === undefined ? [] : [toTextArray(steps), incident]),
  ];
}

function toTextArray(texts: readonly string[] | undefined): string | null {
  return texts === undefined ? null : toArrayLiteral(texts);
}

/** The instance at a later time. */
export function atTime(instance: LoadedInstance, nowMs: number): LoadedInstance {
  return copyInstance(instance, instance, instance, nowMs);
}

/** The instance after the decision was saved. */
export function applyDecision(before: LoadedInstance, decision: Decision): LoadedInstance {
  return copyInstance(before, decision, { version: before.version + 1, claims: 0 }, before.nowMs);
}

// Field by field: spreading an object of this size is many times slower.
function copyInstance(
  { id, type, definitionVersion, key, input, traceparent, correlationId, parent, seal }: LoadedInstance,
  { status, state }: Pick<LoadedInstance, "status" | "state">,
  { version, claims }: Pick<LoadedInstance, "version" | "claims">,
  nowMs: number,
): LoadedInstance {
  return {
    seal,
    id,
    type,
    definitionVersion,
    key,
    status,
    input,
    state,
    version,
    traceparent,
    correlationId,
    parent,
    claims,
    nowMs,
  };
}

/** The operator behind an input, or null. */
export function findActor(input: SagaInput): string | null {
  return "by" in input ? (input.by?.actor ?? null) : null;
}

/** The operator's reason, or null. */
export function findReason(input: SagaInput): string | null {
  return "by" in input ? (input.by?.reason ?? null) : null;
}

/** A deep copy without fields that are undefined, which JSON cannot express. */
export function withoutUndefined(value: object): Json {
  return JSON.parse(JSON.stringify(value)) as Json;
}
