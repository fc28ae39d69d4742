import { deadLetterStatements, type DeadLetterStatements } from "../dead-letter/index.ts";
import { SagaboxError } from "../errors/index.ts";
import { type AnyContract, type Unpack, unpackPlain } from "../message/index.ts";
import { type Clock, systemClock } from "../runtime/index.ts";
import { type Database, type Queryable, quoteSchema } from "../storage/index.ts";
import { type Observer, silentObserver, silentSpans, type Spans } from "../telemetry/index.ts";
import type { OpenScope } from "./handler.ts";
import { inboxStatements, type InboxStatements } from "./statements.ts";

/** What every transaction of the inbox needs; one per process, shared by all its consumers. */
export interface InboxEngine {
  readonly database: Database;
  readonly sql: InboxStatements;
  readonly deadLetters: DeadLetterStatements;
  readonly openScope: OpenScope;
  readonly unpack: Unpack;
  readonly sealReply: EncryptReply;
  readonly observer: Observer;
  readonly spans: Spans;
  readonly clock: Clock;
  /** After this silence others take over what a process had. */
  readonly leaseMs: number;
  /** Bounds the transactions of handlers, so that connections are left for everything else. */
  readonly slots: TransactionPermits;
}

/** Seals the personal fields in the reply to a command, in the transaction of its effect. */
export type EncryptReply = (
  contract: AnyContract,
  data: unknown,
  reply: unknown,
  tx: Queryable,
) => Promise<unknown>;

export interface InboxEngineOptions {
  readonly database: Database;
  readonly schema: string;
  /** Without it handlers cannot publish. */
  readonly openScope?: OpenScope;
  /** Default: the data is in the message, in clear. */
  readonly unpack?: Unpack;
  /** Default: replies stay as they are. */
  readonly sealReply?: EncryptReply;
  readonly observer?: Observer;
  /** Default: nobody traces. */
  readonly spans?: Spans;
  readonly clock?: Clock;
  /** After this silence others take over what this process had. Default: they never do. */
  readonly leaseMs?: number;
  /** Size of the pool less what relay, transport and handlers themselves need of it. Default: no bound. */
  readonly maxTransactions?: number;
}

export function inboxEngine(options: InboxEngineOptions): InboxEngine {
  const schema = quoteSchema(options.schema);
  return {
    database: options.database,
    sql: inboxStatements(schema),
    deadLetters: deadLetterStatements(schema),
    openScope: options.openScope ?? noOutbox,
    unpack: options.unpack ?? unpackPlain,
    sealReply: options.sealReply ?? ((_, __, reply) => Promise.resolve(reply)),
    observer: options.observer ?? silentObserver,
    spans: options.spans ?? silentSpans,
    clock: options.clock ?? systemClock,
    leaseMs: options.leaseMs ?? Number.POSITIVE_INFINITY,
    slots: new TransactionPermits(options.maxTransactions ?? Number.POSITIVE_INFINITY),
  };
}

const noOutbox: OpenScope = () => ({
  publish: () =>
    Promise.reject(
      new SagaboxError(
        "BUS_NOT_RUNNING",
        "This inbox was made without an outbox, so its handlers cannot publish.",
      ),
    ),
  open: () => {
    throw new SagaboxError("CLAIM_STORE_UNKNOWN", "This inbox was made without a claim check.");
  },
  waitForPending: () => Promise.resolve(),
  lastStatements: () => [],
  handleCommit: () => undefined,
});

/** Hands out at most `limit` places; who comes later waits in line. */
export class TransactionPermits {
  #limit: number;
  readonly #waiting: (() => void)[] = [];
  #held = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Known once everything that needs connections has been counted; nobody is turned out. */
  set limit(limit: number) {
    this.#limit = limit;
  }

  async acquire(): Promise<() => void> {
    if (this.#held < this.#limit) this.#held += 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    let held = true;
    return () => {
      if (held) this.#release();
      held = false;
    };
  }

  #release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#held -= 1;
    else next();
  }
}
