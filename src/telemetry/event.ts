export type LogLevel = "debug" | "info" | "warn" | "error" | "silent";
type EventLevel = Exclude<LogLevel, "silent">;

/** A field of an event: its type, and its meaning for the reference page. */
export interface EventField<Value = unknown, IsOptional extends boolean = boolean> {
  readonly meaning: string;
  readonly isOptional: IsOptional;
  /** Not set: it holds the type of the value. */
  readonly type?: Value;
}

export type EventFields = Readonly<Record<string, EventField>>;

type OptionalKeys<F extends EventFields> = {
  [Key in keyof F]: F[Key]["isOptional"] extends true ? Key : never;
}[keyof F];
type ValueOf<F extends EventField> = F extends EventField<infer Value> ? Value : never;
type Required<F extends EventFields, Key extends keyof F> = { readonly [K in Key]: ValueOf<F[K]> };
type Optional<F extends EventFields, Key extends keyof F> = { readonly [K in Key]?: ValueOf<F[K]> };

/** The values that are emitted with an event. */
export type FieldValues<F extends EventFields> = Required<F, Exclude<keyof F, OptionalKeys<F>>> &
  Optional<F, OptionalKeys<F>>;

/** An event as data. Its type, its log level and the reference page follow from it. */
export interface TelemetryEvent<F extends EventFields = EventFields> {
  readonly level: EventLevel;
  /** A lower level for some values; `when` describes them for the reference page. */
  readonly milder?: {
    readonly level: EventLevel;
    readonly when: string;
    is(fields: FieldValues<F>): boolean;
  };
  /** Every occurrence is logged: lifecycles, retries and dead letters. Of other events, similar lines are limited. */
  readonly always?: true;
  readonly meaning: string;
  readonly fields: F;
}

export function event<const F extends EventFields>(definition: TelemetryEvent<F>): TelemetryEvent<F> {
  return definition;
}

/** Creates the fields of events. */
export const field = {
  text: (meaning: string) => create<string>(meaning),
  textOrNull: (meaning: string) => create<string | null>(meaning),
  number: (meaning: string) => create<number>(meaning),
  numberOrNull: (meaning: string) => create<number | null>(meaning),
  optionalNumber: (meaning: string): EventField<number, true> => ({ meaning, isOptional: true }),
  flag: (meaning: string) => create<boolean>(meaning),
  /** One of a few words, which are listed between the meaning and the note. */
  oneOf: <const Word extends string>(words: readonly Word[], meaning: string, note = "") =>
    create<Word>(`${meaning} ${listWords(words)}. ${note}`.trim()),
} as const;

function create<Value>(meaning: string): EventField<Value, false> {
  return { meaning, isOptional: false };
}

function listWords(words: readonly string[]): string {
  const quoted = words.map((word) => `\`${word}\``);
  return quoted.length === 1 ? quoted.join("") : `${quoted.slice(0, -1).join(", ")} or ${quoted.at(-1)}`;
}
