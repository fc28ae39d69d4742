import { SagaboxError } from "../errors/index.ts";
import {
  deriveContext,
  currentMessageContext,
  encodeJson,
  isValidId,
  parseTraceparent,
  type Json,
} from "../message/index.ts";
import { randomBytes } from "../runtime/index.ts";
import type { SagaDefinition } from "./definition.ts";
import type { SagaEngine, SagaTransaction } from "./engine.ts";
import { newState } from "./state.ts";

export interface Started {
  readonly sagaId: string;
  /** False when an instance with this key existed already; it is left as it is. */
  readonly started: boolean;
}

interface Origin {
  readonly id?: string;
  readonly parent?: { readonly id: string; readonly place: string };
  readonly correlationId?: string;
  readonly traceparent?: string;
}

/** Makes the instance and takes its first step, all inside the given transaction. */
export async function startIn(
  engine: SagaEngine,
  tx: SagaTransaction,
  definition: SagaDefinition,
  given: unknown,
  origin: Origin = {},
): Promise<Started> {
  const { sql, parts } = engine;
  const input = await validInput(definition, given);
  const key = validKey(definition, input);
  const id = origin.id ?? parts.newId();
  const context = deriveContext(currentMessageContext(), traced(origin), { messageId: id, randomBytes });
  await tx.run(sql.meet, [definition.name, key]);
  const { rows } = await tx.run<{ id: string }>(sql.insert, [
    id,
    definition.name,
    definition.version,
    key,
    encodeJson(input),
    encodeJson(newState() as unknown as Json),
    parseTraceparent(context.traceparent)?.traceId ?? "",
    context.traceparent,
    context.correlationId,
    origin.parent?.id ?? null,
    origin.parent?.place ?? null,
  ]);
  if (rows.length === 0) return existing(engine, tx, definition, key);
  await tx.run(sql.collect, [definition.name, key, id]);
  const before = await engine.load(tx, id);
  if (before === undefined) throw new SagaboxError("SAGA_NOT_FOUND", `Saga ${id} is not there.`);
  await engine.apply(tx, definition, before, { cause: `start:${id}`, input: { kind: "start" } });
  return { sagaId: id, started: true };
}

async function existing(
  { sql }: SagaEngine,
  tx: SagaTransaction,
  definition: SagaDefinition,
  key: string,
): Promise<Started> {
  const { rows } = await tx.run<{ id: string }>(sql.idOf, [definition.name, key]);
  return { sagaId: rows[0]?.id ?? "", started: false };
}

function traced({ correlationId, traceparent }: Origin): { correlationId?: string; traceparent?: string } {
  return {
    ...(correlationId === undefined ? {} : { correlationId }),
    ...(traceparent === undefined ? {} : { traceparent }),
  };
}

async function validInput(definition: SagaDefinition, given: unknown): Promise<Json> {
  const outcome = await definition.input["~standard"].validate(given);
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

function validKey(definition: SagaDefinition, input: Json): string {
  const key = definition.key(input);
  if (typeof key === "string" && isValidId(key)) return key;
  throw new SagaboxError(
    "KEY_INVALID",
    `The key of saga "${definition.name}" must be a text of 1 to 255 characters that is not blank.`,
  );
}
