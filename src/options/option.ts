import { callable, flag, milliseconds, oneOf, text, wholeNumber, type Duration } from "./checks.ts";

/**
 * One option as data. `Given` is the type users write, `Setting` the type of the checked value. The type of an options
 * object, the check for unknown keys, the checks of values and the reference page are all derived from tables of these.
 */
export interface Option<Given = unknown, Setting = unknown, IsRequired = boolean, Kind = OptionKind> {
  readonly kind: Kind;
  readonly isRequired: IsRequired;
  /** The value of an absent option, as a user would write it. */
  readonly default?: Given | undefined;
  readonly bounds: OptionBounds;
  /** Returns the checked value. Throws OPTIONS_INVALID with the name of the option. */
  readonly check: (name: string, value: unknown) => Setting;
}

export type OptionKind = "number" | "duration" | "text" | "choice" | "flag" | "function" | "value";

export interface OptionBounds {
  readonly min?: number;
  readonly max?: number;
  readonly pattern?: RegExp;
  /** An example that matches the pattern, for the error message. */
  readonly like?: string;
  readonly choices?: readonly string[];
  /** The accepted values in words, for the reference page. */
  readonly accepts?: string;
}

/** The options of one object by name. A doc comment on a property is shown by editors and on the reference page. */
export type OptionTable = Readonly<Record<string, Option>>;

type RequiredKeys<T extends OptionTable> = {
  [Key in keyof T]: T[Key]["isRequired"] extends true ? Key : never;
}[keyof T];
type Given<O extends Option> = O extends Option<infer G> ? G : never;
type Needed<T extends OptionTable, Key extends keyof T> = { readonly [K in Key]: Given<T[K]> };
type Optional<T extends OptionTable, Key extends keyof T> = { readonly [K in Key]?: Given<T[K]> };

/** The type of the object that users write. Doc comments of the table are kept. */
export type OptionsFrom<T extends OptionTable> = Needed<T, RequiredKeys<T>> &
  Optional<T, Exclude<keyof T, RequiredKeys<T>>>;

/** The type of the checked values. A duration is a number of milliseconds, and its name gets the suffix `Ms`. */
export type SettingsFrom<T extends OptionTable> = {
  readonly [Key in keyof T as T[Key]["kind"] extends "duration" ? `${Key & string}Ms` : Key]: ReturnType<
    T[Key]["check"]
  >;
};

interface Presence<Value> {
  readonly default?: Value;
  readonly required?: true;
}

type Absent<R> = R extends { readonly required: true } | { readonly default: unknown } ? never : undefined;
type IsRequired<R> = R extends { readonly required: true } ? true : false;

interface NumberRules extends Presence<number> {
  readonly min?: number;
  readonly max?: number;
}

/** A duration such as "30s" or "5m", or a number of milliseconds. */
export type DurationOrMs = Duration | number;

interface DurationRules extends Presence<DurationOrMs> {
  readonly min?: number;
  readonly max?: number;
}

interface TextRules extends Presence<string> {
  readonly min?: number;
  readonly max?: number;
  readonly pattern?: RegExp;
  readonly like?: string;
}

interface ValueRules<Value, Setting> {
  /** The accepted values in words or as a type, for the reference page. */
  readonly accepts: string;
  /** Returns the setting, or throws OPTIONS_INVALID. Default: returns the value. */
  readonly check?: (name: string, value: unknown) => Setting;
  readonly default?: Value;
}

/** A whole number from `min` (default 0) to `max` (default 2,147,483,647). */
function number<const R extends NumberRules>(
  rules: R,
): Option<number, number | Absent<R>, IsRequired<R>, "number"> {
  const bounds = { min: rules.min ?? 0, max: rules.max ?? 2_147_483_647 };
  return create("number", rules, bounds, (name, value) => wholeNumber(name, value, bounds));
}

/** A duration such as "30s", or a number of milliseconds. The bounds are milliseconds; `max` is 24 days by default. */
function duration<const R extends DurationRules>(
  rules: R,
): Option<DurationOrMs, number | Absent<R>, IsRequired<R>, "duration"> {
  const bounds = { min: rules.min ?? 0, max: rules.max ?? 2_147_483_647 };
  return create("duration", rules, bounds, (name, value) => milliseconds(name, value, bounds));
}

/** A string of `min` (default 1) to `max` (default 255) characters that matches `pattern`. */
function string<const R extends TextRules>(
  rules: R,
): Option<string, string | Absent<R>, IsRequired<R>, "text"> {
  const { min = 1, max = 255, pattern, like } = rules;
  const bounds = { min, max, ...(pattern && { pattern }), ...(like !== undefined && { like }) };
  return create("text", rules, bounds, (name, value) => text(name, value, bounds));
}

function choice<const C extends string, const R extends Presence<C>>(
  choices: readonly C[],
  rules: R,
): Option<C, C | Absent<R>, IsRequired<R>, "choice"> {
  return create("choice", rules, { choices }, (name, value) => oneOf(name, value, choices));
}

function boolean<const R extends Presence<boolean>>(
  rules: R,
): Option<boolean, boolean | Absent<R>, IsRequired<R>, "flag"> {
  return create("flag", rules, {}, flag);
}

function callback<F>(): Option<F, F | undefined, false, "function">;
function callback<F>(byDefault: F): Option<F, F, false, "function">;
function callback<F>(byDefault?: F): Option<F, F | undefined, false, "function"> {
  return create<F, F, false, "function">("function", { default: byDefault }, {}, (name, given) =>
    callable(name, given as F),
  );
}

/** Any other value. */
function value<Value, Setting = Value>(
  rules: ValueRules<Value, Setting> & { readonly required: true },
): Option<Value, Setting, true, "value">;
function value<Value, Setting = Value>(
  rules: ValueRules<Value, Setting> & { readonly default: Value },
): Option<Value, Setting, false, "value">;
function value<Value, Setting = Value>(
  rules: ValueRules<Value, Setting>,
): Option<Value, Setting | undefined, false, "value">;
function value<Value, Setting>(
  rules: ValueRules<Value, Setting> & Presence<Value>,
): Option<Value, Setting, boolean, "value"> {
  const { accepts, check = (_, given) => given as Setting } = rules;
  return create("value", rules, { accepts }, check);
}

/** Creates the options of a table. An option without `default` and `required` may be absent; its setting is undefined. */
export const option = { number, duration, string, choice, boolean, callback, value } as const;

function create<Value, Setting, IsNeeded, Kind>(
  kind: Kind,
  {
    required = false as never,
    default: byDefault,
  }: Presence<Value> | { default?: Value | undefined; required?: never },
  bounds: OptionBounds,
  check: (name: string, value: unknown) => Setting,
): Option<Value, Setting, IsNeeded, Kind> {
  return Object.freeze({ kind, isRequired: required as IsNeeded, default: byDefault, bounds, check });
}
