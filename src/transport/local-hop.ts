import type { Database, Statement } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { Transport } from "./transport.ts";

/**
 * Lets a transport in the outbox's own database take over a batch inside the statement that settles it. That is one
 * transaction without a copy of the payload, so nothing can be lost or sent twice in between.
 */
export interface LocalHop {
  /** Settles sent rows. Takes the parameters and returns the columns of the outbox's own settle statement. */
  readonly settle: Statement;
  /** Like `settle`, but skips rows that other sessions have locked, and returns them in addition. */
  readonly settlePast: Statement;
  /** Settles rows that the writing process leased to itself. */
  readonly settleLeased: Statement;
  /** Settles leased rows, skips rows that other sessions have locked, and returns the skipped ones. */
  readonly settleLeasedPast: Statement;
  /** Wakes consumers that wait for new deliveries in these lanes. */
  wake(lanes: readonly number[]): void;
}

/** The bus's database, as attached to a local transport. */
export interface HomeDatabase {
  readonly database: Database;
  readonly schema: string;
  readonly channel: string;
  readonly leaseMs: number;
  readonly observer: Observer;
}

export interface LocalTransport extends Transport {
  attach(home: HomeDatabase): LocalHop;
  /** A notification arrived for these lanes. Undefined means that notifications may have been missed. */
  hint(lanes: readonly number[] | undefined, changed?: boolean): void;
}

export function isLocalTransport(transport: Transport): transport is LocalTransport {
  return "attach" in transport && typeof transport.attach === "function";
}
