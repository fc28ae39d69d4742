import { deadLetterStatements, type DeadLetterStatements } from "../dead-letter/index.ts";
import { SagaboxError } from "../errors/index.ts";
import { type AnyContract, type Unpack, unpackPlain } from "../message/index.ts";
import { type Clock, systemClock } from "../runtime/index.ts";
import { type Database, type Queryable, quoteSchema } from "../storage/index.ts";
import { type Observer, silentObserver, silentSpans, type Spans } from "../telemetry/index.ts";
import type { OpenScope } from "./handler.ts";
import { inboxStatements, type InboxStatements } from "./statements.ts";

/** Everything that the inbox needs to run a handler's transaction. All consumers of a process share one engine. */
export interface InboxEngine {
  readonly database: Database;
  /** Begins the transaction of a handler: in the user's library, or in `database`. */
  readonly begin: Database["begin"];
  readonly sql: InboxStatements;
  readonly deadLetters: DeadLetterStatements;
  readonly openScope: OpenScope;
  readonly unpack: Unpack;
  readonly encryptReply: EncryptReply;
  readonly observer: Observer;
  readonly spans: Spans;
  readonly clock: Clock;
  /** Other workers take over the messages of a worker that has not renewed its lease for this long. */
  readonly leaseMs: number;
  /** Limits the transactions of handlers, so that connections remain for the relay and the transport. */
  readonly permits: TransactionPermits;
}

/** Encrypts the personal fields of a command's reply, in the transaction of its effect. */
export type EncryptReply = (
  contract: AnyContract,
  data: unknown,
  reply: unknown,
  tx: Queryable,
) => Promise<unknown>;

export interface InboxEngineOptions {
  readonly database: Database;
  /** Begins the transaction of a handler. Default: `database.begin`. */
  readonly begin?: Database["begin"];
  readonly schema: string;
  /** Without it handlers cannot publish. */
  readonly openScope?: OpenScope;
  /** Decodes the payload of a message. Default: the data is in the message, unencrypted. */
  readonly unpack?: Unpack;
  /** Default: replies are not encrypted. */
  readonly encryptReply?: EncryptReply;
  readonly observer?: Observer;
  /** Default: no spans. */
  readonly spans?: Spans;
  readonly clock?: Clock;
  /** Lease of this worker in milliseconds. Default: it never expires. */
  readonly leaseMs?: number;
  /** How many handler transactions may be open at once. Default: no limit. */
  readonly maxTransactions?: number;
}

export function inboxEngine(options: InboxEngineOptions): InboxEngine {
  const schema = quoteSchema(options.schema);
  return {
    database: options.database,
    begin: options.begin ?? ((limits) => options.database.begin(limits)),
    sql: inboxStatements(schema),
    deadLetters: deadLetterStatements(schema),
    openScope: options.openScope ?? noOutbox,
    unpack: options.unpack ?? unpackPlain,
    encryptReply: options.encryptReply ?? ((_, __, reply) => Promise.resolve(reply)),
    observer: options.observer ?? silentObserver,
    spans: options.spans ?? silentSpans,
    clock: options.clock ?? systemClock,
    leaseMs: options.leaseMs ?? Number.POSITIVE_INFINITY,
    permits: new TransactionPermits(options.maxTransactions ?? Number.POSITIVE_INFINITY),
  };
}

const noOutbox: OpenScope = (tx) => ({
  tx: {
    query: (text: string, params?: readonly unknown[]) => tx.query(text, params),
    publish: rejectWithoutOutbox,
    start: rejectWithoutOutbox,
  },
  publish: rejectWithoutOutbox,
  start: rejectWithoutOutbox,
  open: () => {
    throw new SagaboxError("CLAIM_STORE_UNKNOWN", "This inbox was created without a claim check.");
  },
  waitForPending: () => Promise.resolve(),
  lastStatements: () => [],
  handleCommit: () => undefined,
});

function rejectWithoutOutbox(): Promise<never> {
  return Promise.reject(
    new SagaboxError(
      "BUS_NOT_RUNNING",
      "This inbox was created without an outbox, so its handlers can neither publish nor start sagas.",
    ),
  );
}

/** A semaphore for handler transactions: grants at most `limit` permits at once, first come, first served. */
export class TransactionPermits {
  #limit: number;
  readonly #waiting: (() => void)[] = [];
  #held = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Set when the connections needed elsewhere are known. Permits that were granted before stay valid. */
  set limit(limit: number) {
    this.#limit = limit;
  }

  /** Waits for a permit. Returns the function that releases it; further calls of it have no effect. */
  async acquire(): Promise<() => void> {
    if (this.#held < this.#limit) this.#held += 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    let isHeld = true;
    return () => {
      if (isHeld) this.#release();
      isHeld = false;
    };
  }

  #release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#held -= 1;
    else next();
  }
}
