import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Duration } from "../errors/index.ts";
import type { Json } from "./json.ts";
import type { FieldPath } from "./personal.ts";

export type Schema = StandardSchemaV1;
export type Out<T extends Schema> = StandardSchemaV1.InferOutput<T>;
export type In<T extends Schema> = StandardSchemaV1.InferInput<T>;

/** Data of an older version has lost its type: it is whatever JSON.parse gives. */
export type UntypedJson = ReturnType<typeof JSON.parse>;

/** The wire carries the output; it must be JSON and valid input again, or both ends cannot validate with one schema. */
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
  /** Raise it with every incompatible change, and add an upcaster from the version before. Default 1. */
  readonly version?: number;
  /** Whose data this is, and the fields that are encrypted with their key. */
  readonly personal?: {
    readonly subject: (data: Out<T>) => string;
    readonly fields: readonly F[];
  };
  /** From each older version to the next one: `{ 1: (v1) => v2, 2: (v2) => v3 }`. */
  readonly upcast?: Readonly<Record<number, (old: UntypedJson) => unknown>>;
  /** Where it is sent. Default: the routing function of the bus, else a name made from kind and type. */
  readonly topic?: string;
  /** After this time it is no longer delivered but dead-lettered as expired. Default: never. */
  readonly ttl?: Duration | number;
  /** 9 is most urgent. Chooses among keys, never inside one. Default 5. */
  readonly priority?: Priority;
  /** "strict" locks the key at publish, so that the order of calls is the order of sending. Default "commit". */
  readonly order?: "commit" | "strict";
  /** Whether later messages of a key go on after one of them died. Default "continue". */
  readonly onDead?: "continue" | "hold";
  /** How often sending is tried. Default: the policy of the outbox, 10. */
  readonly maxAttempts?: number;
  /** Type of the aggregate the message is about; the key is its id. */
  readonly aggregate?: string;
}

export type KeyFunction<T extends Schema> = (data: Out<T>) => string;

export interface CommandOptions<
  T extends Schema,
  F extends string = FieldPath<Out<T>>,
> extends ContractOptions<T, F> {
  /** The service that carries the command out. */
  readonly target?: string;
}
