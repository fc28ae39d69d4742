import type { Readable } from "node:stream";
import type {
  AnyContract,
  GivenInput,
  Attachment,
  DataOf,
  InputOf,
  Json,
  Message,
  Published,
  PublishOptions,
  ReplyInputOf,
} from "../message/index.ts";
import type { OwnedTransaction, Param, Rows, Sql, Statement } from "../storage/index.ts";

/** A message as a handler gets it. Its data is decoded, upcast to the current version and validated. */
export type Received<C extends AnyContract = AnyContract> = Omit<Message, "data"> & {
  readonly data: DataOf<C>;
};

/** A saga made by `saga()`, as far as starting it needs to know. */
export interface Startable<I> {
  readonly definition: object;
  readonly "~saga": { readonly input: I };
}

export interface Started {
  readonly sagaId: string;
  /** False if an instance with this key exists already. That instance is not changed. */
  readonly started: boolean;
}

/**
 * The transaction that `bus.transaction()`, handlers and `tx` steps of sagas get. Queries, messages and started sagas
 * commit or roll back together. The functions work without `this`.
 */
export interface BusTransaction extends Sql {
  /** Publishes a message with this transaction. Throws if the data violate the contract. */
  readonly publish: <C extends AnyContract>(
    contract: C,
    data: InputOf<C>,
    options?: PublishOptions,
  ) => Promise<Published>;
  /** Starts a saga with this transaction. If an instance with the same key exists, the call returns that one. */
  readonly start: <I>(saga: Startable<I>, input: GivenInput<NoInfer<I>>) => Promise<Started>;
}

/** Publishes in the handler's transaction. The id of the handled message becomes the causation id. */
export type PublishInHandler = BusTransaction["publish"];

/** Collects what the handlers of one transaction publish. The app opens one scope per transaction. */
export interface OutgoingScope {
  /** The transaction for the handlers: a `BusTransaction`, or the one of the user's library. */
  readonly tx: unknown;
  readonly publish: BusTransaction["publish"];
  readonly start: BusTransaction["start"];
  open(attachment: Attachment): Readable;
  /** Waits for all publishes that have started. Rejects if one of them failed. */
  waitForPending(): Promise<void>;
  /** Statements that must still run in the transaction. They are sent together with COMMIT. */
  lastStatements(): readonly { readonly statement: Statement; readonly params: readonly Param[] }[];
  /** Called after COMMIT with the answers to `lastStatements()`: the published messages can be sent now. */
  handleCommit(answers: readonly Rows<unknown>[]): void;
}

export type OpenScope = (tx: OwnedTransaction) => OutgoingScope;

/** What a handler can use besides its message. */
export interface HandlerContext<Tx = BusTransaction> {
  /**
   * The transaction that also contains the dedupe row: a `BusTransaction`, or the transaction of the library that the bus was
   * created with (`transactions`).
   */
  readonly tx: Tx;
  /** Aborts at the deadline, at a stop, and when another worker takes the message over. */
  readonly signal: AbortSignal;
  /** Equal for all attempts of this consumer at this message. Pass it to systems outside the database. */
  readonly idempotencyKey: string;
  /** The number of this attempt, from 1. */
  readonly attempt: number;
  readonly consumer: string;
  /** Publishes a message in the transaction. */
  readonly publish: PublishInHandler;
  /** Starts a saga in the transaction. */
  readonly start: BusTransaction["start"];
  /** Streams the bytes of an attachment. The stream fails at its end if the bytes do not match the attached ones. */
  readonly open: (attachment: Attachment) => Readable;
}

export type BatchContext<Tx = BusTransaction> = Omit<HandlerContext<Tx>, "attempt" | "idempotencyKey"> & {
  /** The idempotency key of one of the messages. Equal for all attempts. */
  readonly idempotencyKeyFor: (message: { readonly id: string }) => string;
};

/** A command's handler returns the reply. An event's handler may return a result, which is stored with the dedupe row. */
export type HandlerResult<C extends AnyContract> = [ReplyInputOf<C>] extends [never]
  ? Json | void
  : ReplyInputOf<C>;

export type Handler<C extends AnyContract, Tx = BusTransaction> = (
  message: Received<C>,
  context: HandlerContext<Tx>,
) => HandlerResult<C> | Promise<HandlerResult<C>>;

/** Handles a batch of new messages, in order, in one transaction: all of them succeed or none does. */
export type BatchHandler<C extends AnyContract, Tx = BusTransaction> = (
  messages: readonly Received<C>[],
  context: BatchContext<Tx>,
) => void | Promise<void>;

/**
 * Returns the whole effect as one SQL statement that reads from `fresh`, a table with one row for a new message and none
 * for a duplicate: `insert into bill (id) select $1::text from fresh`. The text must be equal for all messages.
 */
export type StatementHandler<C extends AnyContract> = (message: Received<C>) => {
  readonly text: string;
  readonly params?: readonly Param[];
};
