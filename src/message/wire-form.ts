import { isDeepStrictEqual } from "node:util";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { PayloadError } from "../errors/index.ts";
import type { AnyContract } from "./contract.ts";
import { encodeJson, formatPath, type Json } from "./json.ts";
import { runSchema } from "./validate.ts";

// The form of data between publisher and handler. A schema may transform, so it must run exactly once on the
// way: the publisher passes its input, the handler gets its output. The wire carries data for which
// `validate(wire)` equals `validate(input)`:
//   1. the output as JSON, if validating that gives the output again;
//   2. else the input as JSON, if validating that gives the output;
//   3. else the data are refused.
// Handlers, sagas and requesters call validate(wire).

type MaybePromise<T> = T | Promise<T>;

const MAX_DEPTH = 64;
/** Only stops values without end. The limit for payloads is checked when the wire form is stored. */
const MAX_BYTES = 2 ** 26;

/** Limits how many values are visited, because shared references may unfold without end. */
class Budget {
  #left = 2 ** 20;

  take(): boolean {
    return this.#left-- > 0;
  }
}

/**
 * Validates the input and returns the form in which it is sent or stored. `what` names the data in errors.
 * Throws PAYLOAD_INVALID if the input does not match, and PAYLOAD_NOT_JSON or PAYLOAD_NOT_REPEATABLE if
 * neither output nor input can be sent.
 */
export function toWire(schema: StandardSchemaV1, what: string, input: unknown): MaybePromise<unknown> {
  const out = runSchema(schema, what, input);
  return out instanceof Promise
    ? out.then((value: unknown) => chooseWire(schema, what, input, value))
    : chooseWire(schema, what, input, out);
}

/**
 * A schema that returns the wire form of data instead of its output, for data that are stored before their
 * handler sees them.
 */
export function wireSchema(schema: StandardSchemaV1, what: string): StandardSchemaV1 {
  const validate = (input: unknown): MaybePromise<StandardSchemaV1.Result<unknown>> =>
    mapResult(schema["~standard"].validate(input), (result) =>
      result.issues === undefined
        ? mapResult(chooseWire(schema, what, input, result.value), (value) => ({ value }))
        : result,
    );
  return { "~standard": { version: 1, vendor: "sagabox", validate } };
}

const outputs = new WeakMap<StandardSchemaV1, WeakMap<object, unknown>>();

/**
 * Returns the output of a schema for stored data. Data that it rejects, because they were stored under another
 * schema or personal fields were erased, and data of an asynchronous schema are returned unchanged.
 */
export function validateIfSync(schema: StandardSchemaV1, wire: unknown): unknown {
  if (typeof wire !== "object" || wire === null) return outputOf(schema, wire);
  let known = outputs.get(schema);
  if (known === undefined) outputs.set(schema, (known = new WeakMap()));
  if (!known.has(wire)) known.set(wire, outputOf(schema, wire));
  return known.get(wire);
}

function outputOf(schema: StandardSchemaV1, wire: unknown): unknown {
  const result = schema["~standard"].validate(wire);
  if (!(result instanceof Promise)) return result.issues === undefined ? result.value : wire;
  result.catch(() => undefined);
  return wire;
}

function chooseWire(
  schema: StandardSchemaV1,
  what: string,
  input: unknown,
  out: unknown,
): MaybePromise<unknown> {
  // The usual case: the schema changed nothing, so validating the output repeats what was just done.
  if (isSameJson(input, out, new Budget(), 0)) return out;
  if (input === undefined && out === undefined) return undefined;
  const output = toJson(out);
  const again = output.text === undefined ? notRun : attempt(schema, output.text);
  return mapResult(again, (result) => {
    const difference = result === undefined ? [] : findDifference(result.value, out, 0);
    if (output.text !== undefined && difference === undefined) return JSON.parse(output.text) as Json;
    return fallBackToInput(schema, what, { input, out, outputError: output.error, difference });
  });
}

interface Fallback {
  readonly input: unknown;
  readonly out: unknown;
  /** Why the output is not JSON. */
  readonly outputError: unknown;
  /** The path at which the schema changes its own output. Empty if it rejects its output. */
  readonly difference: readonly PropertyKey[] | undefined;
}

function fallBackToInput(
  schema: StandardSchemaV1,
  what: string,
  { input, out, outputError, difference = [] }: Fallback,
): MaybePromise<unknown> {
  const given = toJson(input);
  const { text } = given;
  if (text === undefined) throw given.error ?? outputError ?? notRepeatable(what, difference);
  return mapResult(attempt(schema, text), (result) => {
    const inputDifference = result === undefined ? undefined : findDifference(result.value, out, 0);
    if (result !== undefined && inputDifference === undefined) return JSON.parse(text) as Json;
    // If JSON changes the input there, for example a Date, the error of encodeJson() says what to send instead.
    const path = inputDifference ?? difference;
    throw findJsonError(input, result === undefined ? undefined : path) ?? notRepeatable(what, path);
  });
}

interface Attempt {
  readonly value: unknown;
}

const notRun = undefined;

/** Validates parsed JSON. Undefined if the schema rejects it. */
function attempt(schema: StandardSchemaV1, text: string): MaybePromise<Attempt | undefined> {
  const result = schema["~standard"].validate(JSON.parse(text));
  return mapResult(result, (settled) =>
    settled.issues === undefined ? { value: settled.value } : undefined,
  );
}

// Most schemas are synchronous, so no promise is created for each message.
function mapResult<T, R>(value: MaybePromise<T>, map: (value: T) => MaybePromise<R>): MaybePromise<R> {
  return value instanceof Promise ? value.then((settled: T) => map(settled)) : map(value);
}

/** Compares plain JSON. False for everything else, so that the caller looks closer. */
function isSameJson(one: unknown, other: unknown, budget: Budget, depth: number): boolean {
  if (typeof one !== "object" || one === null) return one === other && isJsonScalar(one);
  if (typeof other !== "object" || other === null || depth >= MAX_DEPTH || !budget.take()) return false;
  if (Array.isArray(one)) {
    if (!Array.isArray(other) || one.length !== other.length) return false;
    for (let i = 0; i < one.length; i++) if (!isSameJson(one[i], other[i], budget, depth + 1)) return false;
    return true;
  }
  if (!isPlain(one) || !isPlain(other)) return false;
  const keys = Object.keys(one);
  if (keys.length !== Object.keys(other).length) return false;
  for (const key of keys) {
    if (!Object.hasOwn(other, key) || !isSameJson(one[key], other[key], budget, depth + 1)) return false;
  }
  return true;
}

function isJsonScalar(value: unknown): boolean {
  return (
    typeof value === "string" || typeof value === "number" || typeof value === "boolean" || value === null
  );
}

function isPlain(value: object): value is Record<string, unknown> {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

interface Encoded {
  readonly text?: string;
  readonly error?: PayloadError;
}

/** JSON text of a value, with a Date as its ISO string, or the error of encodeJson(). */
function toJson(value: unknown): Encoded {
  const plain = encode(value);
  // Only a value that is not JSON may hold a Date. A value without end has another error.
  return plain.error?.code === "PAYLOAD_NOT_JSON" ? encode(datesToText(value, new Budget(), 0)) : plain;
}

function encode(value: unknown): Encoded {
  try {
    return { text: encodeJson(value, { maxBytes: MAX_BYTES }) };
  } catch (error) {
    if (!(error instanceof PayloadError)) throw error;
    return { error };
  }
}

/** Why encodeJson() refuses the value unchanged, at this path if one is passed. */
function findJsonError(value: unknown, path: Path | undefined): unknown {
  const { error } = encode(value);
  if (path === undefined || !(error instanceof PayloadError)) return error;
  return error.issues[0]?.path === formatPath(path) ? error : undefined;
}

function datesToText(value: unknown, budget: Budget, depth: number): unknown {
  if (typeof value !== "object" || value === null || depth > MAX_DEPTH || !budget.take()) return value;
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? value : value.toISOString();
  if (Array.isArray(value)) return value.map((item: unknown) => datesToText(item, budget, depth + 1));
  if (!isPlain(value)) return value;
  const copy: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  for (const key of Object.keys(value)) copy[key] = datesToText(value[key], budget, depth + 1);
  return copy;
}

type Path = readonly PropertyKey[];

/**
 * The path of the first difference, or undefined if both are equal. A property that is undefined equals one that
 * is absent, and -0 equals 0, since JSON makes no difference either.
 */
function findDifference(one: unknown, other: unknown, depth: number): Path | undefined {
  if (one === other) return undefined;
  if (depth < MAX_DEPTH && typeof one === "object" && typeof other === "object" && one && other) {
    if (Array.isArray(one) && Array.isArray(other)) {
      if (one.length !== other.length) return ["length"];
      return firstDifference(one.keys(), (index) => findDifference(one[index], other[index], depth + 1));
    }
    if (isPlain(one) && isPlain(other)) {
      const keys = new Set([...Object.keys(one), ...Object.keys(other)]);
      return firstDifference(keys, (key) =>
        findDifference(ownValue(one, key), ownValue(other, key), depth + 1),
      );
    }
  }
  return isDeepStrictEqual(one, other) ? undefined : [];
}

function ownValue(object: Record<string, unknown>, key: string): unknown {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

function firstDifference<K extends PropertyKey>(
  keys: Iterable<K>,
  compare: (key: K) => Path | undefined,
): Path | undefined {
  for (const key of keys) {
    const found = compare(key);
    if (found !== undefined) return [key, ...found];
  }
  return undefined;
}

function notRepeatable(what: string, path: Path): PayloadError {
  const where = path.length === 0 ? "" : ` at ${formatPath(path)}`;
  const message =
    "neither the output nor the input of the schema gives the same data when the consumer validates it as JSON";
  return new PayloadError(
    "PAYLOAD_NOT_REPEATABLE",
    `The data of ${what} cannot be sent${where}: ${message}. Make the transform return JSON that the schema accepts ` +
      "unchanged, or let the schema accept the JSON form of its input, and set values that differ on each call " +
      "(such as random ids) before you publish.",
    { issues: [{ path: formatPath(path), message }] },
  );
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
