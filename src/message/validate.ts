import type { StandardSchemaV1 } from "@standard-schema/spec";
import { PayloadError, type PayloadIssue } from "../errors/index.ts";
import type { AnyContract, DataOf } from "./contract.ts";
import { formatPath } from "./path.ts";
import type { HiddenField } from "./payload.ts";

/** The data as its schema puts it out, or a PayloadError that lists what is wrong where. */
export function validate<C extends AnyContract>(contract: C, input: unknown): DataOf<C> | Promise<DataOf<C>> {
  return runSchema(contract.schema, `${contract.kind} "${contract.name}"`, input);
}

/**
 * The same where some personal values cannot be had: complaints about those places, or about what holds them, do not
 * count. The data then stays as it is, since there is no output of a schema for what it did not accept.
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

/** The same for the answer to a command; without a reply schema the answer is dropped. */
export function validateReply(contract: AnyContract, reply: unknown): unknown {
  return contract.reply === null
    ? undefined
    : runSchema(contract.reply, `the reply to "${contract.name}"`, reply);
}

function runSchema(schema: StandardSchemaV1, what: string, input: unknown): unknown {
  const result = schema["~standard"].validate(input);
  // Most schemas answer at once; a promise for each message would be paid for nothing.
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

// Some libraries begin their messages with the path.
function describeIssue({ path, message }: PayloadIssue): string {
  return message.startsWith(path) ? message : `${path}: ${message}`;
}

// Some schema libraries quote the rejected value in their message, and messages end in logs and dead letters.
const quotedByValibot = /\s*,? but received [^]*$/;
const quotedByArktype = /\s*\(was [^]*\)$/;
const MAX_LEAVES = 1_000;

/** The message of a schema library without the value it complains about. */
function redactValues(message: string, rejected: unknown): string {
  const kept = message.replace(quotedByValibot, "").replace(quotedByArktype, "").slice(0, 300);
  return quotesValue(kept, rejected) ? "is not acceptable" : kept;
}

// Messages written by users or by other libraries may quote too, in any form; then nothing of them is kept. A value
// too large to be looked through counts as quoted.
function quotesValue(message: string, rejected: unknown): boolean {
  const left: unknown[] = [rejected];
  for (let seen = 0; left.length > 0 && seen < MAX_LEAVES; seen++) {
    const value = left.pop();
    if (typeof value === "object" && value !== null) left.push(...Object.values(value).slice(0, MAX_LEAVES));
    else if (isQuoted(message, value)) return true;
  }
  return left.length > 0;
}

// Values of one or two characters occur in every sentence and tell nothing.
function isQuoted(message: string, value: unknown): boolean {
  if (typeof value !== "string" && typeof value !== "number" && typeof value !== "bigint") return false;
  const text = String(value);
  return text.length > 2 && message.includes(text);
}
