import type { Readable } from "node:stream";
import type { Duration } from "../errors/index.ts";
import type {
  AnyContract,
  Attachment,
  DataOf,
  InputOf,
  Json,
  Message,
  Priority,
  ReplyOf,
} from "../message/index.ts";
import type { OwnedTransaction, Param, Rows, Sql, Statement } from "../storage/index.ts";

/** A message as a handler gets it: the data is read, brought to the current version and validated. */
export type Received<C extends AnyContract = AnyContract> = Omit<Message, "data"> & {
  readonly data: DataOf<C>;
};

/** What a handler may say about a message it publishes; the rest is inherited from the message it handles. */
export interface OutgoingOptions {
  readonly id?: string;
  readonly key?: string;
  readonly topic?: string;
  readonly delay?: Duration | number;
  readonly at?: Date;
  readonly priority?: Priority;
  readonly ttl?: Duration | number;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Publishes inside the handler's transaction; the message is caused by the one being handled. */
export type PublishInHandler = <C extends AnyContract>(
  contract: C,
  data: InputOf<C>,
  options?: OutgoingOptions,
) => Promise<{ readonly id: string }>;

/** What the handlers of one transaction publish. The app makes one per transaction from its outbox. */
export interface OutgoingScope {
  readonly publish: PublishInHandler;
  open(attachment: Attachment): Readable;
  /** Ends when everything that was begun in it has ended, and fails with whatever of it failed. */
  waitForPending(): Promise<void>;
  /** Statements that still have to run in the transaction; they travel with its COMMIT. */
  lastStatements(): readonly { readonly statement: Statement; readonly params: readonly Param[] }[];
  /** The transaction has committed, with these answers to `last()`: what was written may be sent now. */
  handleCommit(answers: readonly Rows<unknown>[]): void;
}

export type OpenScope = (tx: OwnedTransaction) => OutgoingScope;

export interface HandlerContext {
  /** SQL inside the transaction that also holds the dedupe row and everything published here. */
  readonly tx: Sql;
  /** Aborts at the deadline, and when another member has taken the message over. */
  readonly signal: AbortSignal;
  /** The same for every attempt at this message by this consumer: hand it to whatever is outside the database. */
  readonly idempotencyKey: string;
  /** 1 for the first time. */
  readonly attempt: number;
  readonly consumer: string;
  readonly publish: PublishInHandler;
  /** The bytes of an attachment, as they are read; the stream fails at its end if they are not those that were attached. */
  readonly open: (attachment: Attachment) => Readable;
}

export type BatchContext = Omit<HandlerContext, "attempt" | "idempotencyKey"> & {
  /** The stable key for one of the messages. */
  readonly idempotencyKeyOf: (message: { readonly id: string }) => string;
};

/** A command's handler returns the reply; an event's may return a result that is kept with the dedupe row. */
export type HandlerResult<C extends AnyContract> = [ReplyOf<C>] extends [never] ? Json | void : ReplyOf<C>;

export type Handler<C extends AnyContract> = (
  message: Received<C>,
  context: HandlerContext,
) => HandlerResult<C> | Promise<HandlerResult<C>>;

/** Gets only messages it has not seen, in order; all of them succeed or none does. */
export type BatchHandler<C extends AnyContract> = (
  messages: readonly Received<C>[],
  context: BatchContext,
) => void | Promise<void>;

/**
 * The whole effect as one SQL text that reads from `fresh`, which has one row if the message is new and none if it
 * was handled before: `insert into bill (id) select $1::text from fresh`. The text must not change between messages.
 */
export type StatementHandler<C extends AnyContract> = (message: Received<C>) => {
  readonly text: string;
  readonly params?: readonly Param[];
};
