import { createSagaAdmin, readSagaKeys, type SagaAdmin } from "../../admin/index.ts";
import type { SagaDefinition } from "../../saga/index.ts";
import { textValue, UsageError, type CommandInput, type Io } from "../command.ts";
import { loadEnvironment, withSchema } from "../settings.ts";

/** Runs `work` with the operations on the sagas of the environment's database. */
export function withSagas<T>(
  input: CommandInput,
  io: Io,
  work: (admin: SagaAdmin) => Promise<T>,
  definitions: readonly SagaDefinition[] = [],
): Promise<T> {
  const { keyRing } = loadEnvironment(io);
  const keys = readSagaKeys({ text: keyRing, file: io.env["SAGABOX_KEY_RING_FILE"] });
  return withSchema(input, io, "operator", (database, schema) =>
    work(createSagaAdmin(database, schema, () => definitions, keys(database, schema))),
  );
}

export function numberValue(input: CommandInput, name: string): number | undefined {
  const given = textValue(input, name);
  if (given === undefined) return undefined;
  if (!/^\d{1,9}$/.test(given)) throw new UsageError(`--${name} must be a whole number.`);
  return Number(given);
}

/** The given entries without those that are undefined. */
export function dropUndefined<T extends object>(entries: T): { [K in keyof T]: NonNullable<T[K]> } {
  const set = Object.entries(entries).filter(([, value]) => value !== undefined);
  return Object.fromEntries(set) as { [K in keyof T]: NonNullable<T[K]> };
}
