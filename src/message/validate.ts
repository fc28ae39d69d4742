import type { AnyContract, DataOf } from "./contract.ts";
import type { HiddenField } from "./payload.ts";
import { issuePath, readOutput, runSchema } from "./run-schema.ts";
import { toWire } from "./wire-form.ts";

/** Returns the output of the contract's schema. Throws a PayloadError that lists each issue with its path. */
export function validate<C extends AnyContract>(contract: C, input: unknown): DataOf<C> | Promise<DataOf<C>> {
  return runSchema(contract.schema, `${contract.kind} "${contract.name}"`, input);
}

/**
 * Validates data in which some personal values are missing: issues at their paths, or at parents of them, are
 * ignored. The data is then returned unchanged, because a schema has no output for input it rejected.
 */
export async function validateIgnoring<C extends AnyContract>(
  contract: C,
  input: unknown,
  hidden: readonly HiddenField[],
): Promise<DataOf<C>> {
  const result = await contract.schema["~standard"].validate(input);
  if (result.issues === undefined) return result.value;
  const issues = result.issues.filter(
    (issue) => !hidden.some(({ path }) => isSameBranch(issuePath(issue), path)),
  );
  if (issues.length === 0) return input;
  return readOutput({ issues }, `${contract.kind} "${contract.name}"`, input);
}

function isSameBranch(keys: readonly PropertyKey[], path: readonly (string | number)[]): boolean {
  const depth = Math.min(keys.length, path.length);
  return keys.slice(0, depth).every((key, index) => String(key) === String(path[index]));
}

/** Validates the reply to a command. Without a reply schema the reply is dropped. */
export function validateReply(contract: AnyContract, reply: unknown): unknown {
  return contract.reply === null
    ? undefined
    : runSchema(contract.reply, `the reply to "${contract.name}"`, reply);
}

/**
 * Returns the form in which the data of a message are sent, for data that the caller publishes. Throws
 * PAYLOAD_INVALID, and PAYLOAD_NOT_JSON or PAYLOAD_NOT_REPEATABLE if the data cannot be sent.
 */
export function toWireData(contract: AnyContract, input: unknown): unknown {
  return toWire(contract.schema, `${contract.kind} "${contract.name}"`, input);
}

/** Returns the form in which the reply to a command is sent. Without a reply schema the reply is dropped. */
export function toWireReply(contract: AnyContract, reply: unknown): unknown {
  return contract.reply === null
    ? undefined
    : toWire(contract.reply, `the reply to "${contract.name}"`, reply);
}
