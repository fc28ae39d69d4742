import type { StandardSchemaV1 } from "@standard-schema/spec";
import { type Duration, PayloadError, SagaboxError } from "../errors/index.ts";
import type { Schema, WireOf } from "./json-types.ts";
import { isValidId } from "./message-id.ts";
import type { MessageKind } from "./message.ts";
import type { FieldPath } from "./personal.ts";

/**
 * A message type that publisher and consumer agree on: its name, version and schema, and how it is delivered.
 */
export interface Contract<
  Kind extends MessageKind,
  Data,
  Input,
  Reply,
  Keyed extends boolean,
  ReplyInput = Reply,
> {
  readonly kind: Kind;
  readonly name: string;
  readonly version: number;
  readonly schema: StandardSchemaV1<Input, Data>;
  readonly reply: StandardSchemaV1<unknown, Reply> | null;
  readonly personal: PersonalFields | null;
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
  /** Messages with one key keep their order. Reads the key from data in the form in which they are sent. */
  key?(wire: unknown): string;
  /** Exists for the compiler only; absent at run time. */
  readonly "~types": {
    readonly data: Data;
    readonly input: Input;
    readonly reply: Reply;
    readonly replyInput: ReplyInput;
    readonly keyed: Keyed;
  };
}

/** The data subject, and the fields with personal data, both read from data in the form in which they are sent. */
export interface PersonalFields {
  subject(wire: unknown): string;
  readonly fields: readonly string[];
  /** Fields of the reply to a command with personal data of this subject. */
  readonly reply: readonly string[];
}

export type AnyEvent = Contract<"event", unknown, unknown, never, boolean>;
export type AnyCommand = Contract<"command", unknown, unknown, unknown, boolean>;
export type AnyStream = Contract<"stream", unknown, unknown, never, boolean>;
export type AnyContract = AnyEvent | AnyCommand | AnyStream;

type Typed = {
  readonly "~types": {
    readonly data: unknown;
    readonly input: unknown;
    readonly reply: unknown;
    readonly replyInput: unknown;
    readonly keyed: boolean;
  };
};

/** The data that a handler receives. */
export type DataOf<C extends Typed> = C["~types"]["data"];
/** The data that a publisher passes. */
export type InputOf<C extends Typed> = C["~types"]["input"];
/** The reply that a requester or a saga receives. */
export type ReplyOf<C extends Typed> = C["~types"]["reply"];
/** The reply that the handler of a command returns. */
export type ReplyInputOf<C extends Typed> = C["~types"]["replyInput"];
export type KeyedOf<C extends Typed> = C["~types"]["keyed"];

/** Returns the key of data in their wire form, or null if the contract has no key. Throws KEY_INVALID. */
export function readMessageKey(contract: AnyContract, wire: unknown): string | null {
  if (contract.key === undefined) return null;
  const key: unknown = contract.key(wire);
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

/** Data of an older version has no static type: it is the result of JSON.parse. */
export type UntypedJson = ReturnType<typeof JSON.parse>;

export type Priority = 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9;

export interface ContractOptions<T extends Schema, F extends string = FieldPath<WireOf<T>>> {
  /** Any Standard Schema: zod, valibot, arktype and others. */
  readonly schema: T;
  /** Raise it with every incompatible change, and add an upcaster from the previous version. Default 1. */
  readonly version?: number;
  /** The data subject, and the fields that are encrypted with the subject's key. */
  readonly personal?: {
    readonly subject: (data: WireOf<T>) => string;
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

/** Reads the key from data in the form in which they are sent. */
export type KeyFunction<T extends Schema> = (data: WireOf<T>) => string;

export interface CommandOptions<
  T extends Schema,
  F extends string = FieldPath<WireOf<T>>,
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
