type Text<K> = K & string;
type Members<G> = G extends Readonly<Record<string, unknown>> ? Text<keyof G> : never;

/** The steps of a saga: by name, by group and name, or by name and round (`"ask@2"`). */
export type StepName<R> =
  | Text<keyof R>
  | { [G in Text<keyof R>]: `${G}.${Members<NonNullable<R[G]>>}` }[Text<keyof R>]
  | `${string}@${number}`;

type At<R, N extends string> = N extends `${infer P}@${number}`
  ? At<R, P>
  : N extends keyof R
    ? R[N]
    : N extends `${infer G}.${infer M}`
      ? G extends keyof R
        ? M extends keyof NonNullable<R[G]>
          ? NonNullable<R[G]>[M]
          : never
        : never
      : never;

/** What a step leaves behind; nothing need be said where it is nothing. */
export type ResultAt<R, N extends string> =
  // oxlint-disable-next-line typescript/no-invalid-void-type -- a step whose function returns nothing
  undefined extends At<R, N> ? [result?: At<R, N>] : [At<R, N>] extends [void] ? [] : [result: At<R, N>];
