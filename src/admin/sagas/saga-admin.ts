import { type AuditEntry, AuditWriter } from "../../audit/index.ts";
import { isSagaboxError, SagaboxError } from "../../errors/index.ts";
import { text } from "../../options/index.ts";
import { createPrivacyEngine, createSagaVault, readPrivacySettings } from "../../privacy/index.ts";
import {
  definitionStatements,
  type Operator,
  type SagaDefinition,
  sagaStatements,
  type SagaVault,
} from "../../saga/index.ts";
import { type Database, quoteSchema } from "../../storage/index.ts";
import { type AdminDatabase, explainingDatabase } from "../admin-database.ts";
import { adminStatements } from "./statements.ts";

/** What the operations on sagas work with. */
export interface SagaAdmin {
  readonly database: AdminDatabase;
  readonly sql: ReturnType<typeof adminStatements>;
  readonly sagas: ReturnType<typeof sagaStatements>;
  readonly definitions: ReturnType<typeof definitionStatements>;
  readonly audit: AuditWriter;
  /** The definition of a version, where it is known. With it an action is judged exactly as a worker will. */
  readonly definitionOf: (type: string, version: number) => SagaDefinition | undefined;
  /** The names of all sagas of which some version is known here. */
  readonly names: () => readonly string[];
  /** All definitions that are known here, every version of them. */
  readonly known: () => readonly SagaDefinition[];
  /** Decrypts sagas with personal data; without it they are shown as encrypted. */
  readonly vault?: SagaVault | undefined;
}

export function createSagaAdmin(
  database: Database,
  schema: string,
  definitions: () => readonly SagaDefinition[] = () => [],
  vault?: SagaVault,
): SagaAdmin {
  const quoted = quoteSchema(schema);
  return {
    database: explainingDatabase(database, quoted),
    sql: adminStatements(quoted),
    sagas: sagaStatements(quoted),
    definitions: definitionStatements(quoted),
    audit: new AuditWriter(schema),
    definitionOf: (type, version) =>
      definitions().find((one) => one.name === type && one.version === version),
    vault,
    known: definitions,
    names: () => [...new Set(definitions().map(({ name }) => name))],
  };
}

/**
 * Records failed actions in the action log. Accepted and refused actions are in the history of the saga itself; this
 * covers unknown sagas and errors.
 */
export async function auditFailure<T>(
  { audit, database }: SagaAdmin,
  entry: AuditEntry,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isSagaboxError(error, "SAGA_ACTION_REFUSED")) {
      await audit.recordFailure(database, entry, error).catch(() => undefined);
    }
    throw error;
  }
}

/** Validates actor and reason, which every change requires. Throws OPTIONS_INVALID. */
export function readOperator(where: string, { actor, reason }: Operator): Operator {
  return {
    actor: rejectBlank(`${where}: actor`, text(`${where}: actor`, actor)),
    reason: rejectBlank(`${where}: reason`, text(`${where}: reason`, reason, { max: 1_000 })),
  };
}

function rejectBlank(name: string, value: string): string {
  if (value.trim() !== "") return value.trim();
  throw new SagaboxError("OPTIONS_INVALID", `${name} must not be blank.`);
}

export function notFound(id: string): SagaboxError {
  return new SagaboxError(
    "SAGA_NOT_FOUND",
    `There is no saga with the id ${JSON.stringify(id.slice(0, 300))}. If this is a key, \`sagabox saga list --key\` or ` +
      "`bus.sagas.list({ key })` shows the id. Ended sagas are forgotten after their retention.",
  );
}

/** A key ring from the environment: its text, or a file with it. */
export interface KeyRingSource {
  readonly text: string | undefined;
  readonly file: string | undefined;
}

/** Validates the keys, and returns a function that creates the vault to decrypt sagas; undefined without keys. */
export function readSagaKeys(
  given: KeyRingSource,
): (database: Database, schema: string) => SagaVault | undefined {
  const settings = readPrivacySettings({}, given);
  return (database, schema) => {
    const engine = createPrivacyEngine({ database, schema, settings });
    return engine === undefined ? undefined : createSagaVault(engine);
  };
}
