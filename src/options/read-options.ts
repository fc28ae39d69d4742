import { Problems, rejectUnknownKeys } from "./checks.ts";
import type { OptionsFrom, OptionTable, SettingsFrom } from "./option.ts";

interface Reading<T extends OptionTable> {
  /** Begins the names of options in error messages. Default: `where` and a dot. */
  readonly prefix?: string;
  /** Values that come before the defaults of the table, such as those of the environment. */
  readonly fallback?: Partial<OptionsFrom<T>>;
}

/**
 * Checks an options object against its table and returns the frozen settings. Refuses unknown keys. Throws one error
 * that lists every problem.
 */
export function readOptions<T extends OptionTable>(
  where: string,
  table: T,
  given: OptionsFrom<T>,
  reading: Reading<T> = {},
): SettingsFrom<T> {
  const problems = new Problems();
  problems.collect(() => rejectUnknownKeys(where, given, Object.keys(table)));
  const settings = problems.collect(() => readValues(where, table, Object(given) as OptionsFrom<T>, reading));
  problems.throwIfAny(`The options of ${where}`);
  return settings as SettingsFrom<T>;
}

/** Checks the values of an options object, which may have other keys that are checked elsewhere. */
export function readValues<T extends OptionTable>(
  where: string,
  table: T,
  given: OptionsFrom<T>,
  { prefix = `${where}.`, fallback = {} }: Reading<T> = {},
): SettingsFrom<T> {
  const problems = new Problems();
  const values: Readonly<Record<string, unknown>> = given;
  const others: Readonly<Record<string, unknown>> = fallback;
  const settings: Record<string, unknown> = {};
  for (const [key, option] of Object.entries(table)) {
    // Null counts as absent where it cannot be a value of the option.
    const own = values[key] === null && option.kind !== "value" ? undefined : values[key];
    const value = own === undefined ? (others[key] ?? option.default ?? values[key]) : own;
    const isAbsent = value === undefined && !option.isRequired;
    settings[option.kind === "duration" ? `${key}Ms` : key] = isAbsent
      ? undefined
      : problems.collect(() => option.check(`${prefix}${key}`, value));
  }
  problems.throwIfAny(`The options of ${where}`);
  return Object.freeze(settings) as SettingsFrom<T>;
}
