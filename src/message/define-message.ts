import { findNearest, parseDuration, SagaboxError } from "../errors/index.ts";
import {
  type CommandOptions,
  type Contract,
  type ContractOptions,
  isValidTopic,
  type KeyFunction,
} from "./contract.ts";
import type { In, Out, ReplySafe, Schema, WireOf, WireSafe } from "./json-types.ts";
import type { MessageKind } from "./message.ts";
import type { FieldPath, WithPersonalFields } from "./personal.ts";

// The compiler explains a mistake by the last overload, so that one takes contracts with and without a key.

/**
 * Defines an event: something that happened, for any number of consumers. Messages with one key keep their
 * order. Throws CONTRACT_INVALID.
 */
export function event<const T extends Schema, const F extends FieldPath<WireOf<T>> = never>(
  name: string,
  options: ContractOptions<T, F> & { readonly key: KeyFunction<T> } & WireSafe<T>,
): Contract<"event", WithPersonalFields<Out<T>, F>, In<T>, never, true>;
export function event<const T extends Schema, const F extends FieldPath<WireOf<T>> = never>(
  name: string,
  options: ContractOptions<T, F> & { readonly key?: never } & WireSafe<T>,
): Contract<"event", WithPersonalFields<Out<T>, F>, In<T>, never, false>;
export function event<const T extends Schema, const F extends FieldPath<WireOf<T>> = never>(
  name: string,
  options: ContractOptions<T, F> & { readonly key?: KeyFunction<T> } & WireSafe<T>,
): Contract<"event", WithPersonalFields<Out<T>, F>, In<T>, never, boolean>;
export function event(name: string, options: object): unknown {
  return readContract("event", name, options);
}

/** Defines a command: work for one service, which may answer with a reply. Throws CONTRACT_INVALID. */
export function command<
  const T extends Schema,
  const R extends Schema,
  const F extends FieldPath<WireOf<T>> = never,
  const A extends FieldPath<WireOf<R>> = never,
>(
  name: string,
  options: CommandOptions<T, F> & {
    readonly key?: KeyFunction<T>;
    readonly reply: R;
    /** `reply`: the fields of the reply with personal data of the same subject. */
    readonly personal?: { readonly reply?: readonly A[] };
  } & WireSafe<T> &
    ReplySafe<R>,
): Contract<
  "command",
  WithPersonalFields<Out<T>, F>,
  In<T>,
  WithPersonalFields<Out<R>, A>,
  boolean,
  WithPersonalFields<In<R>, A>
>;
export function command<const T extends Schema, const F extends FieldPath<WireOf<T>> = never>(
  name: string,
  options: CommandOptions<T, F> & { readonly key?: KeyFunction<T>; readonly reply?: never } & WireSafe<T>,
): Contract<"command", WithPersonalFields<Out<T>, F>, In<T>, void, boolean>;
export function command(name: string, options: object): unknown {
  return readContract("command", name, options);
}

/**
 * Defines a stream message: one of a series of measurements or changes that the transport retains and
 * consumers read in order. Throws CONTRACT_INVALID.
 */
export function stream<const T extends Schema, const F extends FieldPath<WireOf<T>> = never>(
  name: string,
  options: ContractOptions<T, F> & { readonly key: KeyFunction<T> } & WireSafe<T>,
): Contract<"stream", WithPersonalFields<Out<T>, F>, In<T>, never, true>;
export function stream<const T extends Schema, const F extends FieldPath<WireOf<T>> = never>(
  name: string,
  options: ContractOptions<T, F> & { readonly key?: never } & WireSafe<T>,
): Contract<"stream", WithPersonalFields<Out<T>, F>, In<T>, never, false>;
export function stream<const T extends Schema, const F extends FieldPath<WireOf<T>> = never>(
  name: string,
  options: ContractOptions<T, F> & { readonly key?: KeyFunction<T> } & WireSafe<T>,
): Contract<"stream", WithPersonalFields<Out<T>, F>, In<T>, never, boolean>;
export function stream(name: string, options: object): unknown {
  return readContract("stream", name, options);
}

const commonOptions = [
  "schema",
  "version",
  "personal",
  "upcast",
  "key",
  "topic",
  "ttl",
  "priority",
  "order",
  "onDead",
  "maxAttempts",
  "aggregate",
];
const knownOptions: Record<MessageKind, readonly string[]> = {
  event: commonOptions,
  stream: commonOptions,
  command: [...commonOptions, "reply", "target"],
};

const MAX_TTL_MS = 3_650 * 86_400_000;
const plainName = /^[A-Za-z][A-Za-z0-9_.-]{0,254}$/;

/** Checks the options at run time, fills in the defaults and freezes the contract. */
function readContract(kind: MessageKind, name: string, input: object): object {
  function assertRule(holds: boolean, rule: string): void {
    if (!holds)
      throw new SagaboxError(
        "CONTRACT_INVALID",
        `${kind}(${JSON.stringify(name)}): ${rule}${rule.endsWith("?") ? "" : "."}`,
      );
  }
  assertRule(typeof name === "string" && plainName.test(name), "the name must match " + String(plainName));
  assertRule(isObject(input), "the options must be an object");
  const known = knownOptions[kind];
  for (const key of Object.keys(input))
    assertRule(known.includes(key), `there is no option "${key}"${suggestOption(key, known)}`);

  const options = input as Record<string, unknown>;
  const { version = 1, upcast = {}, personal, ttl, priority = 5, maxAttempts = null } = options;
  const { order = "commit", onDead = "continue", topic = null, aggregate = null, target = null } = options;
  const ttlMs = ttl === undefined ? null : parseDuration(ttl);
  const { schema, reply = null, key } = options;

  assertRule(
    isSchema(schema),
    "schema must be a Standard Schema, for example of zod 3.24 or later, valibot or arktype",
  );
  assertRule(reply === null || isSchema(reply), "reply must be a Standard Schema");
  assertRule(isWhole(version, 1, 2_147_483_647), "version must be a whole number from 1");
  assertRule(key === undefined || typeof key === "function", "key must be a function of the data");
  assertRule(
    ttlMs === null || isWhole(ttlMs, 1, MAX_TTL_MS),
    'ttl must be a duration such as "5m", up to "3650d"',
  );
  assertRule(isWhole(priority, 0, 9), "priority must be a whole number from 0 to 9");
  assertRule(
    maxAttempts === null || isWhole(maxAttempts, 1, 1_000),
    "maxAttempts must be a whole number from 1 to 1000",
  );
  assertRule(order === "commit" || order === "strict", 'order must be "commit" or "strict"');
  assertRule(onDead === "continue" || onDead === "hold", 'onDead must be "continue" or "hold"');
  assertRule(key !== undefined || order === "commit", 'order "strict" needs a key');
  assertRule(key !== undefined || onDead === "continue", 'onDead "hold" needs a key');
  assertRule(
    topic === null || isValidTopic(topic),
    "topic must have 1 to 249 letters, digits, dots, dashes, underscores",
  );
  assertRule(aggregate === null || isName(aggregate), "aggregate must match " + String(plainName));
  assertRule(target === null || isName(target), "target must match " + String(plainName));
  assertRule(isObject(upcast), "upcast must be an object of functions");
  const gap = findMissingUpcaster(upcast as object, version as number);
  assertRule(gap === undefined, gap ?? "");
  assertRule(
    personal === undefined || isPersonal(personal),
    "personal needs a function subject and an array of 1 to 200 fields, each up to 200 characters, 4000 together",
  );

  return Object.freeze({
    kind,
    name,
    version,
    schema,
    reply,
    topic,
    ttlMs,
    priority,
    order,
    onDead,
    maxAttempts,
    aggregate,
    target,
    upcast: Object.freeze({ ...(upcast as object) }),
    personal: personal === undefined ? null : freezePersonal(personal as PersonalOptions),
    ...(key === undefined ? {} : { key }),
  });
}

function suggestOption(key: string, known: readonly string[]): string {
  const suggestion = findNearest(key, known);
  return suggestion === undefined
    ? `; known options: ${known.join(", ")}`
    : `; did you mean "${suggestion}"?`;
}

// The chain may start at a later version when older ones are no longer in use, but it must reach the current
// one.
function findMissingUpcaster(upcast: object, version: number): string | undefined {
  const from = Object.keys(upcast).map(Number);
  if (from.some((step) => !isWhole(step, 1, version - 1))) {
    return `upcast may only start from the versions before ${version}`;
  }
  if (Object.values(upcast).some((step) => typeof step !== "function"))
    return "each upcaster must be a function";
  for (let step = Math.min(...from); step < version; step++) {
    if (!from.includes(step)) return `upcast lacks the step from version ${step} to ${step + 1}`;
  }
  return undefined;
}

interface PersonalOptions {
  readonly subject: (data: unknown) => string;
  readonly fields: readonly string[];
  readonly reply?: readonly string[];
}

function isPersonal(value: unknown): value is PersonalOptions {
  if (!isObject(value)) return false;
  const { subject, fields, reply } = value as Partial<PersonalOptions>;
  return typeof subject === "function" && isFieldList(fields) && (reply === undefined || isFieldList(reply));
}

function isFieldList(fields: unknown): boolean {
  return (
    Array.isArray(fields) &&
    fields.length >= 1 &&
    fields.length <= 200 &&
    fields.every((field) => typeof field === "string" && field !== "" && field.length <= 200) &&
    fields.join("").length <= 4_000 // they are sent in a header
  );
}

function freezePersonal({ subject, fields, reply = [] }: PersonalOptions): PersonalOptions {
  return Object.freeze({ subject, fields: Object.freeze([...fields]), reply: Object.freeze([...reply]) });
}

function isSchema(value: unknown): boolean {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  const standard = (value as Record<string, unknown>)["~standard"];
  return isObject(standard) && typeof (standard as Record<string, unknown>)["validate"] === "function";
}

function isName(value: unknown): boolean {
  return typeof value === "string" && plainName.test(value);
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

function isWhole(value: unknown, min: number, max: number): value is number {
  return Number.isInteger(value) && (value as number) >= min && (value as number) <= max;
}
