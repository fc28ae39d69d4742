import type { StandardSchemaV1 } from "@standard-schema/spec";
import { type Duration, PayloadError, type PayloadIssue, SagaboxError } from "../errors/index.ts";
import { formatPath, type Json } from "./json.ts";
import { isValidId } from "./message-id.ts";
import type { MessageKind } from "./message.ts";
import type { HiddenField } from "./payload.ts";
import type { FieldPath } from "./personal.ts";

/**
 * A message type that publisher and consumer agree on: its name, version and schema, and how it is delivered.
 */
export interface Contract<Kind extends MessageKind, Data, Input, Reply, Keyed extends boolean> {
  readonly kind: Kind;
  readonly name: string;
  readonly version: number;
  readonly schema: StandardSchemaV1<Input, Data>;
  readonly reply: StandardSchemaV1<unknown, Reply> | null;
  readonly personal: PersonalFields<Data> | null;
  /** Each function converts data of its version to the next version. */
  readonly upcast: Readonly<Record<number, (old: UntypedJson) => unknown>>;
  readonly topic: string | null;
  readonly ttlMs: number | null;
  readonly priority: number;
  readonly order: "commit" | "strict";
  readonly onDead: "continue" | "hold";
  readonly maxAttempts: number | null;
  readonly aggregate: string | null;
  readonly target: string | null;
  /**
   * Messages with one key keep their order. Declared as a method, so that every contract is assignable to
   * AnyContract.
   */
  key?(data: Data): string;
  /** Exists for the compiler only; absent at run time. */
  readonly "~types": {
    readonly data: Data;
    readonly input: Input;
    readonly reply: Reply;
    readonly keyed: Keyed;
  };
}

/** The data subject, and the fields with personal data. */
export interface PersonalFields<Data> {
  subject(data: Data): string;
  readonly fields: readonly string[];
  /** Fields of the reply to a command with personal data of this subject. */
  readonly reply: readonly string[];
}

export type AnyEvent = Contract<"event", unknown, unknown, never, boolean>;
export type AnyCommand = Contract<"command", unknown, unknown, unknown, boolean>;
export type AnyStream = Contract<"stream", unknown, unknown, never, boolean>;
export type AnyContract = AnyEvent | AnyCommand | AnyStream;

type Typed = {
  readonly "~types": { readonly data: unknown; input: unknown; reply: unknown; keyed: boolean };
};

/** The data that a handler receives. */
export type DataOf<C extends Typed> = C["~types"]["data"];
/** The data that a publisher passes. */
export type InputOf<C extends Typed> = C["~types"]["input"];
/** The value that the handler of a command returns. */
export type ReplyOf<C extends Typed> = C["~types"]["reply"];
export type KeyedOf<C extends Typed> = C["~types"]["keyed"];

/** Returns the key of this data, or null if the contract has no key. Throws KEY_INVALID. */
export function readMessageKey(contract: AnyContract, data: unknown): string | null {
  if (contract.key === undefined) return null;
  const key: unknown = contract.key(data);
  if (isValidId(key)) return key;
  throw new SagaboxError(
    "KEY_INVALID",
    `The key function of "${contract.name}" must return a string of 1 to 255 characters without control characters.`,
  );
}

/**
 * Converts data of an older version to the current version. The result must still be validated. Throws
 * PAYLOAD_VERSION_UNKNOWN if an upcaster is missing and PAYLOAD_INVALID if one fails.
 */
export function upcast(contract: AnyContract, version: number, data: unknown): unknown {
  if (version === contract.version) return data;
  let current = data;
  for (let step = version; step !== contract.version; step++) {
    const next = Object.hasOwn(contract.upcast, step) ? contract.upcast[step] : undefined;
    if (next === undefined) throw unknownVersion(contract, version);
    current = runUpcaster(contract, step, () => next(current) as unknown);
  }
  return current;
}

function runUpcaster(contract: AnyContract, step: number, move: () => unknown): unknown {
  try {
    return move();
  } catch (cause) {
    throw new PayloadError(
      "PAYLOAD_INVALID",
      `The upcaster of "${contract.name}" from version ${step} to ${step + 1} failed.`,
      { cause },
    );
  }
}

function unknownVersion(contract: AnyContract, version: number): PayloadError {
  const oldest = Math.min(contract.version, ...Object.keys(contract.upcast).map(Number));
  return new PayloadError(
    "PAYLOAD_VERSION_UNKNOWN",
    `"${contract.name}" of version ${version} cannot be read; this process reads versions ${oldest} to ${contract.version}.`,
  );
}

export type Schema = StandardSchemaV1;
export type Out<T extends Schema> = StandardSchemaV1.InferOutput<T>;
export type In<T extends Schema> = StandardSchemaV1.InferInput<T>;

/** Data of an older version has no static type: it is the result of JSON.parse. */
export type UntypedJson = ReturnType<typeof JSON.parse>;

/**
 * The output of the schema is sent. It must be JSON and valid input again, so that both sides can validate
 * with one schema.
 */
export type WireSafe<T extends Schema> =
  Out<T> extends Json
    ? Out<T> extends In<T>
      ? unknown
      : { schema: "output must be valid input again" }
    : { schema: "output must be JSON" };

export type ReplySafe<T extends Schema> =
  Out<T> extends Json
    ? Out<T> extends In<T>
      ? unknown
      : { reply: "output must be valid input again" }
    : { reply: "output must be JSON" };

export type Priority = 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9;

export interface ContractOptions<T extends Schema, F extends string = FieldPath<Out<T>>> {
  /** Any Standard Schema: zod, valibot, arktype and others. */
  readonly schema: T;
  /** Raise it with every incompatible change, and add an upcaster from the previous version. Default 1. */
  readonly version?: number;
  /** The data subject, and the fields that are encrypted with the subject's key. */
  readonly personal?: {
    readonly subject: (data: Out<T>) => string;
    readonly fields: readonly F[];
  };
  /** One function per older version, to the next one: `{ 1: (v1) => v2, 2: (v2) => v3 }`. */
  readonly upcast?: Readonly<Record<number, (old: UntypedJson) => unknown>>;
  /**
   * The topic it is sent to. Default: the routing function of the bus, else a name made from kind and type.
   */
  readonly topic?: string;
  /**
   * Time to live. After it, the message is dead-lettered as expired instead of delivered. Default: no limit.
   */
  readonly ttl?: Duration | number;
  /** 9 is most urgent. Orders messages of different keys; a key keeps its order. Default 5. */
  readonly priority?: Priority;
  /**
   * "strict" locks the key at publish, so that messages are sent in the order of the calls. Default "commit".
   */
  readonly order?: "commit" | "strict";
  /** Whether later messages of a key are sent after one of them was dead-lettered. Default "continue". */
  readonly onDead?: "continue" | "hold";
  /** Maximum number of attempts to send it. Default: the retry policy of the outbox, 10. */
  readonly maxAttempts?: number;
  /** Type of the aggregate the message is about; the key is its id. */
  readonly aggregate?: string;
}

export type KeyFunction<T extends Schema> = (data: Out<T>) => string;

export interface CommandOptions<
  T extends Schema,
  F extends string = FieldPath<Out<T>>,
> extends ContractOptions<T, F> {
  /** The service that executes the command. */
  readonly target?: string;
}

/**
 * Chooses the topic of a message whose contract names none. Returning undefined selects the default topic.
 */
export type Routing = (message: { readonly kind: MessageKind; readonly type: string }) => string | undefined;

interface RoutedContract {
  readonly kind: MessageKind;
  readonly name: string;
  readonly topic: string | null;
}

const prefix: Record<MessageKind, string> = { event: "events", command: "commands", stream: "streams" };

/**
 * Returns the contract's topic, else the routing function's, else a default such as `events.order.created`.
 * Throws TOPIC_INVALID.
 */
export function resolveTopic(contract: RoutedContract, routing?: Routing): string {
  const { kind, name } = contract;
  const topic = contract.topic ?? routing?.({ kind, type: name }) ?? defaultTopic(contract);
  if (isValidTopic(topic)) return topic;
  throw new SagaboxError(
    "TOPIC_INVALID",
    `The topic of ${kind} "${name}" must have 1 to 249 letters, digits, dots, dashes or underscores.`,
  );
}

export function isValidTopic(topic: unknown): topic is string {
  return (
    typeof topic === "string" && /^[A-Za-z0-9._-]{1,249}$/.test(topic) && topic !== "." && topic !== ".."
  );
}

// Cached per contract, because building the name costs more than the rest of the lookup.
const defaultTopics = new WeakMap<RoutedContract, string>();

function defaultTopic(contract: RoutedContract): string {
  const found = defaultTopics.get(contract);
  if (found !== undefined) return found;
  const topic = `${prefix[contract.kind]}.${toDotted(contract.name)}`;
  defaultTopics.set(contract, topic);
  return topic;
}

// OrderCreated, order_created and order-created are the same topic.
function toDotted(name: string): string {
  return name
    .replace(/([a-z0-9])([A-Z])/g, "$1.$2")
    .replace(/([A-Z])([A-Z][a-z])/g, "$1.$2")
    .replace(/[._-]+/g, ".")
    .replace(/^\.|\.$/g, "")
    .toLowerCase();
}

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

function runSchema(schema: StandardSchemaV1, what: string, input: unknown): unknown {
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
