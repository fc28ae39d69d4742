/** A personal value that this process has no key for. It can be passed on, but not read. */
export interface Encrypted {
  readonly $sealed: string;
}

/** A personal value that can no longer be decrypted, because its data subject was erased. */
export interface Erased {
  readonly $erased: true;
}

/** A personal field as a handler receives it: the value, or the reason why it is missing. */
export type Personal<T> = T | Erased | Encrypted;

/**
 * Incident text of a saga whose data subject was erased. Rows are found by this text, so all rooms use this
 * constant.
 */
export const SUBJECT_ERASED = "the person it was about was erased";

export const erased: Erased = Object.freeze({ $erased: true });

export function isEncrypted(value: unknown): value is Encrypted {
  return hasOnlyKey(value, "$sealed") && typeof value["$sealed"] === "string";
}

export function isErased(value: unknown): value is Erased {
  return hasOnlyKey(value, "$erased") && value["$erased"] === true;
}

function hasOnlyKey(value: unknown, key: string): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && Object.hasOwn(value, key);
}

// Limits the depth of the recursive types: a schema of arbitrary JSON is infinite.
type Deeper = [never, 0, 1, 2, 3, 4, 5, 6];
type Depth = Deeper[number];
type Scalar = string | number | boolean | null | undefined;

/**
 * Dotted paths into data, with `*` for each element of an array: "contact.email", "guests.*.name", or a whole
 * object.
 */
export type FieldPath<T, D extends Depth = 6> = [D] extends [never]
  ? never
  : T extends Scalar
    ? never
    : T extends readonly (infer E)[]
      ? "*" | Below<"*", NonNullable<E>, D>
      : T extends object
        ? { [K in keyof T & string]: K | Below<K, NonNullable<T[K]>, D> }[keyof T & string]
        : never;

type Below<K extends string, T, D extends Depth> = `${K}.${FieldPath<T, Deeper[D]>}`;

/** The data type in which each personal field may also be erased or encrypted. */
export type WithPersonalFields<T, F extends string> = [F] extends [never]
  ? T
  : T extends Scalar
    ? T
    : T extends readonly (infer E)[]
      ? readonly WithPersonalField<E, "*", F>[]
      : T extends object
        ? { [K in keyof T]: WithPersonalField<T[K], K & string, F> }
        : T;

type WithPersonalField<T, K extends string, F extends string> =
  | WithPersonalFields<T, F extends `${K}.${infer Rest}` ? Rest : never>
  | (K extends F ? Erased | Encrypted : never);
