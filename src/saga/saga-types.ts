import type { Duration } from "../errors/index.ts";
import type { AnyCommand, AnyEvent, DataOf, InputOf, Json, KeyedOf, ReplyOf } from "../message/index.ts";
import type { RetryOptions } from "../retry/index.ts";
import type { Sql } from "../storage/index.ts";
import type { SagaDefinition } from "./definition.ts";

// The words of a definition as the compiler sees them. Results flow from step to step; a step before the pivot must say
// how it is undone; after the pivot nothing is.

/** Where a saga stands: what comes can still be undone, or only goes forward. */
export type Phase = "undoable" | "forward";

/** What the functions of a step see. */
export interface Ctx<I, R> {
  readonly input: I;
  /** The results of the steps before. */
  readonly steps: Readonly<R>;
  readonly sagaId: string;
}

/** What a function outside the transaction sees. */
export interface RunCtx<I, R> extends Ctx<I, R> {
  /** The same for every attempt: hand it to whatever is outside. In an undo, that of the step to be undone. */
  readonly idempotencyKey: string;
  /** Aborts when its time is over, and when the result is not wanted any more. */
  readonly signal: AbortSignal;
  readonly attempt: number;
}

/** What a function inside the saga's transaction sees. */
export interface TxCtx<I, R> extends Ctx<I, R> {
  readonly tx: Sql;
}

/** An undo may be for a step whose outcome nobody knows: the type makes the author look. */
export type UndoOf<T> =
  { readonly outcome: "done"; readonly result: T } | { readonly outcome: "unknown"; readonly result?: never };
export type UndoCtx<I, R, T> = RunCtx<I, R> & UndoOf<T>;

export interface StepOptions {
  /** How long the outcome is waited for. Default 30 s. */
  readonly timeout?: Duration | number;
  readonly retry?: RetryOptions;
}

/** How often and after which waits an undo is tried before a person is called. */
export interface UndoOptions {
  readonly retry?: RetryOptions;
}

export interface WaitOptions {
  readonly timeout: Duration | number;
  /** When nothing came in time: the step fails, or goes on with null. Default "fail". */
  readonly onTimeout?: "fail" | "continue";
}

export interface GroupOptions {
  /** What happens to the others when one fails: they may finish, or are undone at once. Default "finish". */
  readonly whenOneFails?: "finish" | "abandon";
}

type Fresh<N extends string, R> = N extends keyof R ? `step "${N}" exists already` : N;
// oxlint-disable-next-line typescript/ban-types -- the empty record to which results are added
export type None = {};
type Add<R, N extends string, T> = R & { readonly [K in N]: T };
type AnySaga<I, R> = { readonly "~saga": { readonly input: I; readonly results: R } };

type Next<I, R, N extends string, T, P extends Phase, K extends UndoKind = "outside"> = P extends "undoable"
  ? NeedsUndo<I, R, N, T, K>
  : Saga<I, Add<R, N, T>, "forward">;

type UndoKind = "outside" | "inside" | "child";

/** A step before the pivot is not finished until it says how it is undone. */
export type NeedsUndo<I, R, N extends string, T, K extends UndoKind = "outside"> = {
  /** It needs none, for this reason. */
  noUndo(reason: string): Saga<I, Add<R, N, T>, "undoable">;
  /** From here on the saga only goes forward. */
  pivot(): Saga<I, Add<R, N, T>, "forward">;
} & (K extends "child"
  ? {
      /** The child saga is compensated. */
      undoChild(): Saga<I, Add<R, N, T>, "undoable">;
    }
  : {
      /** By a command whose reply is waited for. */
      undo<U extends AnyCommand>(
        command: U,
        data: (c: Ctx<I, R> & UndoOf<T>) => InputOf<U>,
        options?: UndoOptions,
      ): Saga<I, Add<R, N, T>, "undoable">;
      /** By a function; that of a `tx` step runs inside the saga's transaction. */
      undo(
        work: (c: K extends "inside" ? TxCtx<I, R> & UndoOf<T> : UndoCtx<I, R, T>) => Promise<void> | void,
        options?: UndoOptions,
      ): Saga<I, Add<R, N, T>, "undoable">;
    });

/** How a member of a group is undone: said with the step, since nothing can follow it. */
export type MemberUndo<I, R, T, P extends Phase> = P extends "forward"
  ? [options?: StepOptions]
  : [
      options: StepOptions & {
        readonly undo:
          | { readonly none: string }
          | ((c: UndoCtx<I, R, T>) => Promise<void> | void)
          | readonly [command: AnyCommand, data: (c: Ctx<I, R> & UndoOf<T>) => unknown];
      },
    ];

/** Steps side by side. */
export interface Group<I, R, G, P extends Phase> {
  send<const N extends string, C extends AnyCommand>(
    name: Fresh<N, G>,
    command: C,
    data: (c: Ctx<I, R>) => InputOf<C>,
    ...rest: MemberUndo<I, R, ReplyOf<C>, P>
  ): Group<I, R, Add<G, N, ReplyOf<C>>, P>;
  run<const N extends string, T extends Json | void>(
    name: Fresh<N, G>,
    work: (c: RunCtx<I, R>) => Promise<T> | T,
    ...rest: MemberUndo<I, R, T, P>
  ): Group<I, R, Add<G, N, T>, P>;
}

export interface Saga<I, R, P extends Phase> {
  /** A command to whoever carries it out; goes on with its reply. */
  send<const N extends string, C extends AnyCommand>(
    name: Fresh<N, R>,
    command: C,
    data: (c: Ctx<I, R>) => InputOf<C>,
    options?: StepOptions,
  ): Next<I, R, N, ReplyOf<C>, P>;
  /** A function outside the transaction: it may run more than once, always with the same idempotency key. */
  run<const N extends string, T extends Json | void>(
    name: Fresh<N, R>,
    work: (c: RunCtx<I, R>) => Promise<T> | T,
    options?: StepOptions,
  ): Next<I, R, N, T, P>;
  /** A function inside the saga's transaction: its effect happens exactly once. */
  tx<const N extends string, T extends Json | void>(
    name: Fresh<N, R>,
    work: (c: TxCtx<I, R>) => Promise<T> | T,
    options?: StepOptions,
  ): Next<I, R, N, T, P, "inside">;
  /** Another saga; goes on with the results of its steps. */
  child<const N extends string, CI, CR>(
    name: Fresh<N, R>,
    saga: AnySaga<CI, CR>,
    input: (c: Ctx<I, R>) => CI,
    options?: Pick<StepOptions, "timeout">,
  ): Next<I, R, N, CR, P, "child">;
  /** All of them, side by side. */
  all<const N extends string, G>(
    name: Fresh<N, R>,
    group: (g: Group<I, R, None, P>) => Group<I, R, G, P>,
    options?: GroupOptions,
  ): Saga<I, Add<R, N, G>, P>;
  /** The first one that succeeds; what the others did is undone. */
  any<const N extends string, G>(
    name: Fresh<N, R>,
    group: (g: Group<I, R, None, P>) => Group<I, R, G, P>,
  ): Saga<I, Add<R, N, Partial<G>>, P>;
  /** Only if; chosen once, when its turn comes. */
  when<const N extends string, G>(
    name: Fresh<N, R>,
    test: (c: Ctx<I, R>) => boolean,
    then: (s: Saga<I, R, P>) => Saga<I, R & G, P>,
  ): Saga<I, R & Partial<Omit<G, keyof R>>, P>;
  /** One of several ways, each with a step in it at least; null is nothing to do. */
  choose<const N extends string, W extends Readonly<Record<string, (s: Saga<I, R, P>) => Way<I, P>>>>(
    name: Fresh<N, R>,
    which: (c: Ctx<I, R>) => (keyof W & string) | null,
    ways: W,
  ): Saga<I, R & Partial<WaysOf<W, R>>, P>;
  /** Again and again, at most `max` times. */
  repeat<const N extends string, G>(
    name: Fresh<N, R>,
    body: (s: Saga<I, R, P>) => Saga<I, R & G, P>,
    until: (c: Ctx<I, R & G>) => boolean,
    options: { readonly max: number },
  ): Saga<I, R & G, P>;
  /** Something that happens elsewhere: the event whose key is this saga's key, or whatever `by` says. */
  waitFor<const N extends string, E extends AnyEvent, const O extends WaitOptions>(
    name: Fresh<N, R>,
    event: E,
    options: O &
      (KeyedOf<E> extends true
        ? { readonly by?: (data: DataOf<E>) => string }
        : { readonly by: (data: DataOf<E>) => string }),
  ): Saga<I, Add<R, N, O extends { readonly onTimeout: "continue" } ? DataOf<E> | null : DataOf<E>>, P>;
  delay<const N extends string>(
    name: Fresh<N, R>,
    time: Duration | number | ((c: Ctx<I, R>) => Duration | number),
  ): Saga<I, R, P>;
  readonly definition: SagaDefinition;
  /** For the compiler only. */
  readonly "~saga": { readonly input: I; readonly results: R; readonly phase: P };
}

type Way<I, P> = { readonly "~saga": { readonly input: I; readonly results: unknown; readonly phase: P } };
type ResultsOf<S> = S extends { readonly "~saga": { readonly results: infer R } } ? R : never;
type Everything<U> = (U extends unknown ? (u: U) => void : never) extends (i: infer I) => void ? I : never;
type WaysOf<W extends Readonly<Record<string, (s: never) => unknown>>, R> = Omit<
  Everything<ResultsOf<ReturnType<W[keyof W]>>>,
  keyof R
>;
