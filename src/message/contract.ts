import type { StandardSchemaV1 } from "@standard-schema/spec";
import { PayloadError, SagaboxError } from "../errors/index.ts";
import type { UntypedJson } from "./contract-options.ts";
import { isValidId } from "./message-id.ts";
import type { MessageKind } from "./message.ts";

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
