import type { Duration } from "../errors/index.ts";
import type { BusTransaction } from "../inbox/index.ts";
import type {
  AnyCommand,
  AnyEvent,
  DataOf,
  InputOf,
  Json,
  KeyedOf,
  ReplyOf,
  JsonResult,
  GivenInput,
  SeenInput,
} from "../message/index.ts";
import type { RetryOptions } from "../retry/index.ts";
import type { SagaDefinition } from "./definition.ts";

// The types of the saga builder. Each step sees the results of earlier steps. A step before the pivot must declare its
// undo; steps after the pivot have none.

/** Before the pivot steps are `undoable`; after it the saga only goes `forward`. */
export type Phase = "undoable" | "forward";

/** Argument of the functions of a step. */
export interface Ctx<I, R> {
  readonly input: SeenInput<I>;
  /** Results of earlier steps, by step name. */
  readonly steps: Readonly<R>;
  readonly sagaId: string;
}

/** Argument of a function that runs outside the transaction. */
export interface RunCtx<I, R> extends Ctx<I, R> {
  /** Equal for all attempts and for the undo. Pass it to external services. */
  readonly idempotencyKey: string;
  /** Aborts when the step times out, when its result is no longer needed, and when the worker stops. */
  readonly signal: AbortSignal;
  readonly attempt: number;
}

/** Argument of a function that runs inside the saga's transaction. */
export interface TxCtx<I, R, Tx = BusTransaction> extends Ctx<I, R> {
  /** The transaction that also saves the step: a `BusTransaction`, or the one of the library named by `transactions`. */
  readonly tx: Tx;
  /** Publishes a message in the transaction. */
  readonly publish: BusTransaction["publish"];
  /** Starts a saga in the transaction. */
  readonly start: BusTransaction["start"];
}

/** The outcome of a step may be unknown when it is undone, so `result` is only typed for `done`. */
export type UndoOf<T> =
  { readonly outcome: "done"; readonly result: T } | { readonly outcome: "unknown"; readonly result?: never };
export type UndoCtx<I, R, T> = RunCtx<I, R> & UndoOf<T>;

export interface StepOptions {
  /** How long to wait for the outcome. Default 30 s. */
  readonly timeout?: Duration | number;
  readonly retry?: RetryOptions;
}

/** Options of an undo. When its retries are used up, an incident is opened. */
export interface UndoOptions {
  readonly retry?: RetryOptions;
}

export interface WaitOptions {
  readonly timeout: Duration | number;
  /** On timeout the step fails, or completes with null (`continue`). Default "fail". */
  readonly onTimeout?: "fail" | "continue";
}

export interface GroupOptions {
  /** When one member fails, the others finish first, or are undone at once (`abandon`). Default "finish". */
  readonly whenOneFails?: "finish" | "abandon";
}

type Fresh<N extends string, R> = N extends keyof R ? `step "${N}" exists already` : N;
// oxlint-disable-next-line typescript/ban-types -- the empty record to which results are added
export type None = {};
type Add<R, N extends string, T> = R & { readonly [K in N]: T };
type AnySaga<I, R> = { readonly "~saga": { readonly input: I; readonly results: R } };

type Next<
  I,
  R,
  N extends string,
  T,
  P extends Phase,
  Tx,
  K extends UndoKind = "outside",
> = P extends "undoable" ? NeedsUndo<I, R, N, T, Tx, K> : Saga<I, Add<R, N, T>, "forward", Tx>;

type UndoKind = "outside" | "inside" | "child" | "publish";

/** A step before the pivot. Call one of these methods to declare its undo and continue. */
export type NeedsUndo<I, R, N extends string, T, Tx = BusTransaction, K extends UndoKind = "outside"> = {
  /** Declares that the step needs no undo, and why. Throws SAGA_INVALID without a reason. */
  noUndo(reason: string): Saga<I, Add<R, N, T>, "undoable", Tx>;
  /** Makes this step the pivot: after it, the saga only goes forward. */
  pivot(): Saga<I, Add<R, N, T>, "forward", Tx>;
} & (K extends "child"
  ? {
      /** Undoes the step by compensating the child saga. */
      undoChild(): Saga<I, Add<R, N, T>, "undoable", Tx>;
    }
  : K extends "publish"
    ? {
        /** Publishes a compensating event, because a published event cannot be taken back. */
        undo<U extends AnyEvent>(
          event: U,
          data: (c: Ctx<I, R>) => InputOf<U>,
          options?: UndoOptions,
        ): Saga<I, Add<R, N, T>, "undoable", Tx>;
      }
    : {
        /** Undoes the step with a command, and waits for its reply. */
        undo<U extends AnyCommand>(
          command: U,
          data: (c: Ctx<I, R> & UndoOf<T>) => InputOf<U>,
          options?: UndoOptions,
        ): Saga<I, Add<R, N, T>, "undoable", Tx>;
        /** Undoes the step with a function. The undo of a `tx` step runs inside the saga's transaction. */
        undo(
          work: (
            c: K extends "inside" ? TxCtx<I, R, Tx> & UndoOf<T> : UndoCtx<I, R, T>,
          ) => Promise<void> | void,
          options?: UndoOptions,
        ): Saga<I, Add<R, N, T>, "undoable", Tx>;
      });

/** Options of a group member. Before the pivot they must include its undo. */
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

/** Options of a group member that publishes. Before the pivot they must include its undo, a compensating event. */
export type PublishUndo<I, R, P extends Phase> = P extends "forward"
  ? [options?: StepOptions]
  : [
      options: StepOptions & {
        readonly undo:
          { readonly none: string } | readonly [event: AnyEvent, data: (c: Ctx<I, R>) => unknown];
      },
    ];

/** Builder for the parallel steps of a group. */
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
  /** An interface as the result. */
  run<const N extends string, T extends JsonResult<T>>(
    name: Fresh<N, G>,
    work: (c: RunCtx<I, R>) => Promise<T> | T,
    ...rest: MemberUndo<I, R, T, P>
  ): Group<I, R, Add<G, N, T>, P>;
  publish<const N extends string, E extends AnyEvent>(
    name: Fresh<N, G>,
    event: E,
    data: (c: Ctx<I, R>) => InputOf<E>,
    ...rest: PublishUndo<I, R, P>
  ): Group<I, R, Add<G, N, void>, P>;
}

export interface Saga<I, R, P extends Phase, Tx = BusTransaction> {
  /** Sends a command and continues with its reply. */
  send<const N extends string, C extends AnyCommand>(
    name: Fresh<N, R>,
    command: C,
    data: (c: Ctx<I, R>) => InputOf<C>,
    options?: StepOptions,
  ): Next<I, R, N, ReplyOf<C>, P, Tx>;
  /** Runs a function outside the transaction. It may run more than once, with one idempotency key. */
  run<const N extends string, T extends Json | void>(
    name: Fresh<N, R>,
    work: (c: RunCtx<I, R>) => Promise<T> | T,
    options?: StepOptions,
  ): Next<I, R, N, T, P, Tx>;
  /** An interface as the result. */
  run<const N extends string, T extends JsonResult<T>>(
    name: Fresh<N, R>,
    work: (c: RunCtx<I, R>) => Promise<T> | T,
    options?: StepOptions,
  ): Next<I, R, N, T, P, Tx>;
  /** Runs a function inside the saga's transaction, so its database writes happen exactly once. */
  tx<const N extends string, T extends Json | void>(
    name: Fresh<N, R>,
    work: (c: TxCtx<I, R, Tx>) => Promise<T> | T,
    options?: StepOptions,
  ): Next<I, R, N, T, P, Tx, "inside">;
  /** An interface as the result. */
  tx<const N extends string, T extends JsonResult<T>>(
    name: Fresh<N, R>,
    work: (c: TxCtx<I, R, Tx>) => Promise<T> | T,
    options?: StepOptions,
  ): Next<I, R, N, T, P, Tx, "inside">;
  /** Publishes an event in the transaction that saves the step: exactly once. */
  publish<const N extends string, E extends AnyEvent>(
    name: Fresh<N, R>,
    event: E,
    data: (c: Ctx<I, R>) => InputOf<E>,
    options?: StepOptions,
  ): Next<I, R, N, void, P, Tx, "publish">;
  /** Starts another saga and continues with the results of its steps. */
  child<const N extends string, CI, CR>(
    name: Fresh<N, R>,
    saga: AnySaga<CI, CR>,
    input: (c: Ctx<I, R>) => GivenInput<CI>,
    options?: Pick<StepOptions, "timeout">,
  ): Next<I, R, N, CR, P, Tx, "child">;
  /** Runs all members in parallel and continues when all are done. */
  all<const N extends string, G>(
    name: Fresh<N, R>,
    group: (g: Group<I, R, None, P>) => Group<I, R, G, P>,
    options?: GroupOptions,
  ): Saga<I, Add<R, N, G>, P, Tx>;
  /** Runs all members in parallel and continues with the first that succeeds. The others are undone. */
  any<const N extends string, G>(
    name: Fresh<N, R>,
    group: (g: Group<I, R, None, P>) => Group<I, R, G, P>,
  ): Saga<I, Add<R, N, Partial<G>>, P, Tx>;
  /** Runs the steps only if `test` returns true. The test runs once and its result is stored. */
  when<const N extends string, G>(
    name: Fresh<N, R>,
    test: (c: Ctx<I, R>) => boolean,
    then: (s: Saga<I, R, P, Tx>) => Saga<I, R & G, P, Tx>,
  ): Saga<I, R & Partial<Omit<G, keyof R>>, P, Tx>;
  /** Runs one of several ways, or none if `which` returns null. Each way needs at least one step. */
  choose<const N extends string, W extends Readonly<Record<string, (s: Saga<I, R, P, Tx>) => Way<I, P>>>>(
    name: Fresh<N, R>,
    which: (c: Ctx<I, R>) => (keyof W & string) | null,
    ways: W,
  ): Saga<I, R & Partial<WaysOf<W, R>>, P, Tx>;
  /** Repeats the steps until `until` returns true. Fails after `max` rounds. */
  repeat<const N extends string, G>(
    name: Fresh<N, R>,
    body: (s: Saga<I, R, P, Tx>) => Saga<I, R & G, P, Tx>,
    until: (c: Ctx<I, R & G>) => boolean,
    options: { readonly max: number },
  ): Saga<I, R & G, P, Tx>;
  /** Waits for an event whose key equals the saga's key. `by` reads the key from other event data. */
  waitFor<const N extends string, E extends AnyEvent, const O extends WaitOptions>(
    name: Fresh<N, R>,
    event: E,
    options: O &
      (KeyedOf<E> extends true
        ? { readonly by?: (data: DataOf<E>) => string }
        : { readonly by: (data: DataOf<E>) => string }),
  ): Saga<I, Add<R, N, O extends { readonly onTimeout: "continue" } ? DataOf<E> | null : DataOf<E>>, P, Tx>;
  delay<const N extends string>(
    name: Fresh<N, R>,
    time: Duration | number | ((c: Ctx<I, R>) => Duration | number),
  ): Saga<I, R, P, Tx>;
  readonly definition: SagaDefinition;
  /** Type information only; not set at run time. */
  readonly "~saga": { readonly input: I; readonly results: R; readonly phase: P };
}

type Way<I, P> = { readonly "~saga": { readonly input: I; readonly results: unknown; readonly phase: P } };
type ResultsOf<S> = S extends { readonly "~saga": { readonly results: infer R } } ? R : never;
type Everything<U> = (U extends unknown ? (u: U) => void : never) extends (i: infer I) => void ? I : never;
type WaysOf<W extends Readonly<Record<string, (s: never) => unknown>>, R> = Omit<
  Everything<ResultsOf<ReturnType<W[keyof W]>>>,
  keyof R
>;
