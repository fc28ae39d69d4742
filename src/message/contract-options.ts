import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Duration } from "../errors/index.ts";
import type { Json } from "./json.ts";
import type { FieldPath } from "./personal.ts";

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
