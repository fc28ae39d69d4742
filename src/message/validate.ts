import type { StandardSchemaV1 } from "@standard-schema/spec";
import { PayloadError, type PayloadIssue } from "../errors/index.ts";
import type { AnyContract, DataOf } from "./contract.ts";
import { formatPath } from "./json.ts";
import type { HiddenField } from "./payload.ts";

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

/** Returns the output of a schema. `what` names the data in errors. Throws PAYLOAD_INVALID. */
export function runSchema(schema: StandardSchemaV1, what: string, input: unknown): unknown {
  const result = schema["~standard"].validate(input);
  // Most schemas are synchronous, so no promise is created for each message.
  return result instanceof Promise
    ? result.then((settled) => readOutput(settled, what, input))
    : readOutput(result, what, input);
}

function readOutput(result: StandardSchemaV1.Result<unknown>, what: string, input: unknown): unknown {
  if (result.issues === undefined) return result.value;
  const issues = result.issues.slice(0, 20).map((issue) => toIssue(issue, input));
  const list = issues.map(describeIssue).join("; ");
  throw new PayloadError("PAYLOAD_INVALID", `The data of ${what} does not match its schema: ${list}`, {
    issues,
  });
}

function toIssue(issue: StandardSchemaV1.Issue, input: unknown): PayloadIssue {
  const keys = issuePath(issue);
  return { path: formatPath(keys), message: redactValues(issue.message, valueAt(input, keys)) };
}

function issuePath({ path = [] }: StandardSchemaV1.Issue): PropertyKey[] {
  return path.map((segment) => (typeof segment === "object" ? segment.key : segment));
}

function valueAt(input: unknown, keys: readonly PropertyKey[]): unknown {
  let value = input;
  for (const key of keys) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<PropertyKey, unknown>)[key];
  }
  return value;
}

// Some schema libraries start their messages with the path.
function describeIssue({ path, message }: PayloadIssue): string {
  return message.startsWith(path) ? message : `${path}: ${message}`;
}

// Some schema libraries quote the rejected value in their message, and messages are stored in logs and dead
// letters.
const quotedByValibot = /\s*,? but received [^]*$/;
const quotedByArktype = /\s*\(was [^]*\)$/;
const MAX_LEAVES = 1_000;

/** Removes the rejected value from the message of a schema library. */
function redactValues(message: string, rejected: unknown): string {
  const kept = message.replace(quotedByValibot, "").replace(quotedByArktype, "").slice(0, 300);
  return quotesValue(kept, rejected) ? "is not acceptable" : kept;
}

// Messages of users or other libraries may quote the value in any form; then the whole message is dropped. A
// value too large to search counts as quoted.
function quotesValue(message: string, rejected: unknown): boolean {
  const left: unknown[] = [rejected];
  for (let seen = 0; left.length > 0 && seen < MAX_LEAVES; seen++) {
    const value = left.pop();
    if (typeof value === "object" && value !== null) left.push(...Object.values(value).slice(0, MAX_LEAVES));
    else if (isQuoted(message, value)) return true;
  }
  return left.length > 0;
}

// Values of one or two characters occur in any sentence and reveal nothing.
function isQuoted(message: string, value: unknown): boolean {
  if (typeof value !== "string" && typeof value !== "number" && typeof value !== "bigint") return false;
  const text = String(value);
  return text.length > 2 && message.includes(text);
}
