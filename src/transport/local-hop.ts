import type { Statement } from "../storage/index.ts";
import type { Transport } from "./transport.ts";

/**
 * A transport that lives in the outbox's own database can take a batch over inside the statement that settles it:
 * one transaction, no copy of the payload, nothing in between to lose or to repeat.
 */
export interface LocalHop {
  /** Runs with the same parameters as the outbox's own settle and gives the same answer. */
  readonly settle: Statement;
  /** The same for rows that the writing process leased to itself. */
  readonly settleLeased: Statement;
  /** Tells waiting consumers which lanes have something new. */
  wake(lanes: readonly number[]): void;
}

export interface LocalTransport extends Transport {
  localHop(schema: string): LocalHop;
}

export function isLocalTransport(transport: Transport): transport is LocalTransport {
  return "localHop" in transport && typeof transport.localHop === "function";
}
