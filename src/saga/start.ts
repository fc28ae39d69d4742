import type { StandardSchemaV1 } from "@standard-schema/spec";
import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import type { Started } from "../inbox/index.ts";
import {
  deriveContext,
  currentMessageContext,
  encodeJson,
  isValidId,
  parseTraceparent,
  poolRandomBytes,
  type DerivedContext,
  type Json,
  wireSchema,
} from "../message/index.ts";
import { randomBytes } from "../runtime/index.ts";
import { failureType } from "../telemetry/index.ts";
import { awaitsEvents, type SagaDefinition } from "./definition.ts";
import type { SagaEngine, SagaTransaction } from "./engine.ts";
import type { Claim, LoadedInstance } from "./saga-store.ts";
import { keysMissing, readSubject, type SubjectCipher } from "./subject-cipher.ts";
import { newState } from "./state.ts";

/** The runner of this worker, which may take over a new instance at once. */
export interface LocalRunner {
  readonly claim: Claim | undefined;
  adopt(instance: LoadedInstance, mayHaveInput: boolean): void;
  /** Signals that a new instance may be due. */
  hint(): void;
}

interface Origin {
  readonly taker?: LocalRunner;
  readonly id?: string;
  readonly parent?: { readonly id: string; readonly stepPath: string };
  readonly correlationId?: string;
  readonly traceparent?: string;
}

/** The checked input of a new instance in the form in which it is stored, its key and its data subject. */
interface Seed {
  readonly input: Json;
  readonly key: string;
  /** The data subject, or null. */
  readonly subject: string | null;
}

/**
 * Validates the input and reads key and data subject, before anything is written. Throws PAYLOAD_INVALID, KEY_INVALID or
 * PRIVACY_SUBJECT_INVALID, and errors of the user's own functions.
 */
export async function readSeed(definition: SagaDefinition, value: unknown): Promise<Seed> {
  const { input: schema, name: saga } = definition;
  const result = wireSchema(schema, `saga "${saga}"`)["~standard"].validate(value);
  const input = checkInput(definition, "then" in result ? await result : result);
  encodeJson(input); // throws if the input cannot be stored
  const { name, personal } = definition;
  const subject = personal === null ? null : readSubject(name, personal, input);
  return { input, key: checkKey(definition, input), subject };
}

export async function startIn(
  engine: SagaEngine,
  tx: SagaTransaction,
  definition: SagaDefinition,
  input: unknown,
  origin: Origin = {},
): Promise<Started> {
  return startFrom(engine, tx, definition, await readSeed(definition, input), origin);
}

const pooledBytes = poolRandomBytes(randomBytes);

/** Inserts the instance and begins its first step inside the transaction. */
export async function startFrom(
  engine: SagaEngine,
  tx: SagaTransaction,
  definition: SagaDefinition,
  { input, key, subject }: Seed,
  origin: Origin = {},
): Promise<Started> {
  const { parts } = engine;
  const id = origin.id ?? parts.newId();
  const current = currentMessageContext();
  const from = { id, input, key, subject };
  if (!parts.spans.enabled) {
    const untraced = { messageId: id, randomBytes: pooledBytes };
    return startWith(
      engine,
      tx,
      definition,
      from,
      deriveContext(current, traceOptions(origin), untraced),
      origin,
    );
  }
  const span = parts.spans.startSaga(id, definition.name, origin.traceparent ?? current?.traceparent);
  const { traceparent } = span;
  const context = deriveContext(current, traceOptions(origin), {
    messageId: id,
    randomBytes: pooledBytes,
    traceparent,
  });
  try {
    return await span.run(() => startWith(engine, tx, definition, from, context, origin));
  } catch (error) {
    span.fail({ type: failureType(error) });
    throw error;
  } finally {
    span.end();
  }
}

async function startWith(
  engine: SagaEngine,
  tx: SagaTransaction,
  definition: SagaDefinition,
  { id, input, key, subject }: Seed & { readonly id: string },
  context: DerivedContext,
  origin: Origin,
): Promise<Started> {
  const nowMs = tx.knowsCommit ? engine.clock.nowMs : undefined;
  // Only events can arrive before the start, so a saga that awaits none needs no lock.
  const keyLock =
    nowMs === undefined || awaitsEvents(definition) ? lockKey(engine, tx, definition, key) : undefined;
  const before: LoadedInstance = {
    id,
    type: definition.name,
    definitionVersion: definition.version,
    key,
    input,
    status: "started",
    state: newState(),
    version: 0,
    traceparent: context.traceparent,
    correlationId: context.correlationId,
    parent: origin.parent ?? null,
    claims: 0,
    nowMs: nowMs ?? (await keyLock)?.nowMs ?? 0,
    seal: subject === null ? undefined : await createCipher(engine, tx, definition, subject),
  };
  const traceId = parseTraceparent(context.traceparent)?.traceId ?? "";
  // Claim the instance only if its first step runs locally.
  const [first] = definition.nodes;
  const isLocal = first?.kind === "step" && (first.work.kind === "run" || first.work.kind === "tx");
  const claim = tx.knowsCommit && isLocal ? origin.taker?.claim : undefined;
  const birth = { definitionVersion: definition.version, traceId, claim };
  try {
    const cause = { cause: `start:${id}`, input: { kind: "start" } } as const;
    const { instance, hasInput = false } = await engine.apply(tx, definition, before, cause, { birth });
    if ((await keyLock)?.blind === true)
      await engine.addPendingInput(tx, id, engine.parts.newId(), COLLECT, { kind: "tick" }, before.seal);
    const { taker } = origin;
    tx.onCommit(() =>
      claim === undefined ? taker?.hint() : taker?.adopt({ ...instance, claims: 1 }, hasInput),
    );
    return { sagaId: id, started: true };
  } catch (error) {
    if (isSagaboxError(error, "SAGA_CONFLICT")) return await findExisting(engine, tx, definition, key);
    throw error;
  } finally {
    if (keyLock !== undefined) await keyLock; // if the lock failed, its error is the cause of later ones
  }
}

/** Cause of a pending input that makes an instance collect early events that its start could not see. */
export const COLLECT = "collect";

interface KeyLock {
  /** The database clock after the lock was taken, in milliseconds. */
  readonly nowMs: number;
  /** The isolation level may hide early events that were committed before. */
  readonly blind: boolean;
}

/** Locks the key against concurrent early events. Not awaited by the caller, so that later statements are pipelined. */
function lockKey(
  engine: SagaEngine,
  tx: SagaTransaction,
  definition: SagaDefinition,
  key: string,
): Promise<KeyLock> {
  const locking = tx.run<{ now_ms: string | number; blind: boolean }>(engine.sql.meet, [
    definition.name,
    key,
  ]);
  const lock = locking.then(({ rows }) => {
    const nowMs = Number(rows[0]?.now_ms);
    engine.clock.update(nowMs);
    return { nowMs, blind: rows[0]?.blind === true && awaitsEvents(definition) };
  });
  lock.catch(() => undefined); // the caller that awaits the lock gets the error
  return lock;
}

async function createCipher(
  { parts: { vault } }: SagaEngine,
  tx: SagaTransaction,
  { name }: SagaDefinition,
  subject: string,
): Promise<SubjectCipher> {
  if (vault === undefined) throw keysMissing(name);
  return vault.forPerson(subject, tx);
}

async function findExisting(
  { sql }: SagaEngine,
  tx: SagaTransaction,
  definition: SagaDefinition,
  key: string,
): Promise<Started> {
  const { rows } = await tx.run<{ id: string }>(sql.idOf, [definition.name, key]);
  return { sagaId: rows[0]?.id ?? "", started: false };
}

function traceOptions({ correlationId, traceparent }: Origin): {
  correlationId?: string;
  traceparent?: string;
} {
  return {
    ...(correlationId === undefined ? {} : { correlationId }),
    ...(traceparent === undefined ? {} : { traceparent }),
  };
}

function checkInput(definition: SagaDefinition, outcome: StandardSchemaV1.Result<unknown>): Json {
  if (outcome.issues === undefined) return outcome.value as Json;
  const problems = outcome.issues.map(({ path, message }) => {
    const where = (path ?? []).map((part) => (typeof part === "object" ? part.key : part)).join(".");
    return where === "" ? message : `${where}: ${message}`;
  });
  throw new SagaboxError(
    "PAYLOAD_INVALID",
    `The input of saga "${definition.name}" does not match its schema: ${problems.join("; ").slice(0, 1_000)}`,
  );
}

function checkKey(definition: SagaDefinition, input: Json): string {
  const key = definition.key(input);
  if (typeof key === "string" && isValidId(key)) return key;
  throw new SagaboxError(
    "KEY_INVALID",
    `The key of saga "${definition.name}" must be a string of 1 to 255 characters that is not blank.`,
  );
}
