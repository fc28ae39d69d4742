import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Json } from "./json.ts";

// What the compiler knows about schemas and JSON. The rule for values is in wire-form.ts.

export type Schema = StandardSchemaV1;
/** What a schema returns: the data of a handler. */
export type Out<T extends Schema> = StandardSchemaV1.InferOutput<T>;
/** What a schema accepts: the data of a publisher. */
export type In<T extends Schema> = StandardSchemaV1.InferInput<T>;

/** Stands for a value that JSON cannot carry. No other type is assignable to it. */
declare const notJson: unique symbol;
interface NotJson<Why = unknown> {
  readonly [notJson]: Why;
}

/**
 * The type of a value after JSON: a Date becomes a string. Interfaces are compared by their properties, since
 * they have no index signature and are not assignable to Json.
 */
export type AsJson<T> = T extends Json | undefined | void
  ? T
  : T extends Date
    ? string
    : T extends bigint | symbol | ((...args: never[]) => unknown)
      ? NotJson
      : T extends object
        ? { [K in keyof T]: AsJson<T[K]> }
        : NotJson;

/**
 * The data of a message as it is sent: the output of the schema if the schema accepts it again, else its
 * input. `key`, `personal.subject` and the fields in `personal` refer to this type.
 */
export type WireOf<T extends Schema> = [AsJson<Out<T>>] extends [In<T>] ? AsJson<Out<T>> : AsJson<In<T>>;

type IsSendable<T extends Schema> = [AsJson<Out<T>>] extends [In<T>]
  ? true
  : [AsJson<In<T>>] extends [In<T>]
    ? true
    : false;

/** Rejects schemas of which neither the output nor the input can be sent as JSON. */
export type WireSafe<T extends Schema> =
  IsSendable<T> extends true ? unknown : { readonly schema: ProblemIn<Out<T>> };

/** Rejects reply schemas of which neither the output nor the input can be sent as JSON. */
export type ReplySafe<R extends Schema> =
  IsSendable<R> extends true ? unknown : { readonly reply: ProblemIn<Out<R>> };

/** Rejects saga inputs that cannot be stored as JSON. */
export type InputSafe<T extends Schema> =
  IsSendable<T> extends true ? unknown : { readonly input: ProblemIn<Out<T>> };

/**
 * Constraint of the type parameter of a result: `T extends JsonResult<T>`. It accepts interfaces. For a value that JSON
 * cannot carry, it is a sentence that says so, which the compiler shows.
 */
export type JsonResult<T> = Json | void | (object & { readonly [K in keyof T]: JsonField<T[K]> });

type JsonField<T> = T extends Json | undefined | void
  ? T
  : T extends Date
    ? NotJson<"JSON cannot carry a Date: return its toISOString()">
    : T extends bigint
      ? NotJson<"JSON cannot carry a bigint: return a string">
      : T extends symbol | ((...args: never[]) => unknown)
        ? NotJson<"JSON cannot carry functions and symbols: leave them out">
        : T extends object
          ? { readonly [K in keyof T]: JsonField<T[K]> }
          : NotJson<"JSON may not carry a value of unknown type">;

/** A sentence that names the first value that JSON cannot carry. */
type ProblemIn<T> = [Problem<T, "", 6>] extends [never] ? "it must be JSON" : Problem<T, "", 6>;

// Limits the depth of the search. It runs only for types that are rejected.
type Deeper = [never, 0, 1, 2, 3, 4, 5, 6];
type Depth = Deeper[number];

type Problem<T, Path extends string, D extends Depth> = [D] extends [never]
  ? never
  : T extends Json | undefined | void
    ? never
    : T extends Date
      ? `${Name<Path>} is a Date, which JSON cannot carry: use a schema that reads an ISO string, such as z.coerce.date(), or send toISOString()`
      : T extends bigint
        ? `${Name<Path>} is a bigint, which JSON cannot carry: send it as a string`
        : T extends symbol | ((...args: never[]) => unknown)
          ? `${Name<Path>} is a function or symbol, which JSON cannot carry: leave it out`
          : T extends ReadonlyMap<unknown, unknown> | ReadonlySet<unknown>
            ? `${Name<Path>} is a Map or Set, which JSON cannot carry: send an object or an array`
            : T extends ArrayBufferView
              ? `${Name<Path>} holds bytes, which JSON cannot carry: send them as base64 or as an attachment`
              : T extends readonly (infer E)[]
                ? Problem<E, `${Path}[]`, Deeper[D]>
                : T extends object
                  ? { [K in keyof T & string]: Problem<T[K], Join<Path, K>, Deeper[D]> }[keyof T & string]
                  : `${Name<Path>} has no known type, so JSON may not carry it`;

type Name<Path extends string> = Path extends "" ? "it" : `"${Path}"`;
type Join<Path extends string, K extends string> = Path extends "" ? K : `${Path}.${K}`;

/** Input of a saga whose schema transforms it: what the caller of `start` passes, and what its steps see. */
export interface TransformedInput<Given, Seen> {
  readonly given: Given;
  readonly seen: Seen;
}

/** The input type of a saga: the plain type, unless the schema transforms. */
export type InputFor<T extends Schema> = [In<T>] extends [Out<T>]
  ? [Out<T>] extends [In<T>]
    ? Out<T>
    : TransformedInput<In<T>, Out<T>>
  : TransformedInput<In<T>, Out<T>>;

/** What the caller of `start` passes. */
export type GivenInput<I> = I extends TransformedInput<infer Given, unknown> ? Given : I;
/** What the functions of the steps see. */
export type SeenInput<I> = I extends TransformedInput<unknown, infer Seen> ? Seen : I;
