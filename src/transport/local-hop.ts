import type { Database, Statement } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { Transport } from "./transport.ts";

/**
 * A transport that lives in the outbox's own database can take a batch over inside the statement that settles it:
 * one transaction, no copy of the payload, nothing in between to lose or to repeat.
 */
export interface LocalHop {
  /** Runs with the same parameters as the outbox's own settle and gives the same answer. */
  readonly settle: Statement;
  /** Settles past locks of other sessions: the same parameters and answer, and the rows that were left out. */
  readonly settlePast: Statement;
  /** Settles rows that the writing process leased to itself. */
  readonly settleLeased: Statement;
  /** Settles leased rows past locks of other sessions, and lists the rows that were left out. */
  readonly settleLeasedPast: Statement;
  /** Tells waiting consumers which lanes have something new. */
  wake(lanes: readonly number[]): void;
}

/** What the house lends to a transport that lives in its database. */
export interface HomeDatabase {
  readonly database: Database;
  readonly schema: string;
  readonly channel: string;
  readonly leaseMs: number;
  readonly observer: Observer;
}

export interface LocalTransport extends Transport {
  attach(home: HomeDatabase): LocalHop;
  /** Something was said on the channel; undefined means that anything may have been missed. */
  hint(lanes: readonly number[] | undefined, changed?: boolean): void;
}

export function isLocalTransport(transport: Transport): transport is LocalTransport {
  return "attach" in transport && typeof transport.attach === "function";
}
