import type { StandardSchemaV1 } from "@standard-schema/spec";
import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import {
  deriveContext,
  currentMessageContext,
  encodeJson,
  isValidId,
  parseTraceparent,
  poolRandomBytes,
  type DerivedContext,
  type Json,
} from "../message/index.ts";
import { randomBytes } from "../runtime/index.ts";
import { failureType } from "../telemetry/index.ts";
import { awaitsEvents, type SagaDefinition } from "./definition.ts";
import type { SagaEngine, SagaTransaction } from "./engine.ts";
import type { Claim, LoadedInstance } from "./saga-store.ts";
import { keysMissing, readSubject, type SubjectCipher } from "./subject-cipher.ts";
import { newState } from "./state.ts";

export interface Started {
  readonly sagaId: string;
  /** False when an instance with this key existed already; it is left as it is. */
  readonly started: boolean;
}

/** Whoever could go on with a new instance in this process. */
export interface LocalRunner {
  readonly claim: Claim | undefined;
  adopt(instance: LoadedInstance, mail: boolean): void;
  /** There is a new one for whoever has room. */
  hint(): void;
}

interface Origin {
  readonly taker?: LocalRunner;
  readonly id?: string;
  readonly parent?: { readonly id: string; readonly place: string };
  readonly correlationId?: string;
  readonly traceparent?: string;
}

/** What an instance begins with. */
interface Seed {
  readonly input: Json;
  readonly key: string;
  /** Whom it is about. */
  readonly subject: string | null;
}

/** Checks the input, finds its key and its person, before anything is written. Throws what the user's own functions throw. */
export async function readSeed(definition: SagaDefinition, given: unknown): Promise<Seed> {
  const checked = definition.input["~standard"].validate(given);
  const input = checkInput(definition, "then" in checked ? await checked : checked);
  encodeJson(input); // refuses here what could not be kept
  const { name, personal } = definition;
  const subject = personal === null ? null : readSubject(name, personal, input);
  return { input, key: checkKey(definition, input), subject };
}

export async function startIn(
  engine: SagaEngine,
  tx: SagaTransaction,
  definition: SagaDefinition,
  given: unknown,
  origin: Origin = {},
): Promise<Started> {
  return startFrom(engine, tx, definition, await readSeed(definition, given), origin);
}

const pooledBytes = poolRandomBytes(randomBytes);

/** Makes the instance and takes its first step, all inside the given transaction. */
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
  // Nobody has anything for an instance that hears nothing: then there is nobody to meet.
  const met =
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
    nowMs: nowMs ?? (await met)?.nowMs ?? 0,
    seal: subject === null ? undefined : await createCipher(engine, tx, definition, subject),
  };
  const traceId = parseTraceparent(context.traceparent)?.traceId ?? "";
  // Taken at once only where something is to be done here at once.
  const [first] = definition.nodes;
  const isLocal = first?.kind === "step" && (first.work.kind === "run" || first.work.kind === "tx");
  const claim = tx.knowsCommit && isLocal ? origin.taker?.claim : undefined;
  const birth = { definitionVersion: definition.version, traceId, claim };
  try {
    const cause = { cause: `start:${id}`, input: { kind: "start" } } as const;
    const { instance, mail = false } = await engine.apply(tx, definition, before, cause, { birth });
    if ((await met)?.blind === true)
      await engine.addPendingInput(tx, id, engine.parts.newId(), COLLECT, { kind: "tick" }, before.seal);
    const { taker } = origin;
    tx.onCommit(() => (claim === undefined ? taker?.hint() : taker?.adopt({ ...instance, claims: 1 }, mail)));
    return { sagaId: id, started: true };
  } catch (error) {
    if (isSagaboxError(error, "SAGA_CONFLICT")) return await findExisting(engine, tx, definition, key);
    throw error;
  } finally {
    if (met !== undefined) await met; // if it failed, whatever was sent behind it failed for that reason
  }
}

/** The letter of an instance to itself: something may have come before it that its start could not see. */
export const COLLECT = "collect";

interface KeyLock {
  /** The database's clock once the place is ours. */
  readonly nowMs: number;
  readonly blind: boolean;
}

/** In a transaction of ours what follows is sent behind it at once. */
function lockKey(
  engine: SagaEngine,
  tx: SagaTransaction,
  definition: SagaDefinition,
  key: string,
): Promise<KeyLock> {
  const asked = tx.run<{ now_ms: string | number; blind: boolean }>(engine.sql.meet, [definition.name, key]);
  const met = asked.then(({ rows }) => {
    const nowMs = Number(rows[0]?.now_ms);
    engine.clock.update(nowMs);
    return { nowMs, blind: rows[0]?.blind === true && awaitsEvents(definition) };
  });
  met.catch(() => undefined); // told to whoever waits for it
  return met;
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
  const places = outcome.issues.map(({ path, message }) => {
    const where = (path ?? []).map((part) => (typeof part === "object" ? part.key : part)).join(".");
    return where === "" ? message : `${where}: ${message}`;
  });
  throw new SagaboxError(
    "PAYLOAD_INVALID",
    `The input of saga "${definition.name}" does not match its schema: ${places.join("; ").slice(0, 1_000)}`,
  );
}

function checkKey(definition: SagaDefinition, input: Json): string {
  const key = definition.key(input);
  if (typeof key === "string" && isValidId(key)) return key;
  throw new SagaboxError(
    "KEY_INVALID",
    `The key of saga "${definition.name}" must be a text of 1 to 255 characters that is not blank.`,
  );
}
