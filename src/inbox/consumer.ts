import { isSagaboxError } from "../errors/index.ts";
import { after, backoffMs, type Service } from "../runtime/index.ts";
import { isLocalTransport, type Transport } from "../transport/index.ts";
import { Consuming } from "./consuming.ts";
import type { CrashLedger, Lease } from "./crash-ledger.ts";
import type { InboxEngine } from "./engine.ts";
import { asError } from "./receive-once.ts";
import type { ConsumerDefinition } from "./registry.ts";

export interface ConsumerParts {
  readonly engine: InboxEngine;
  readonly transport: Transport;
  readonly definition: ConsumerDefinition;
  /** Shared by all consumers of the process; without one, messages that kill the process are not found out. */
  readonly ledger?: CrashLedger;
  /** With whose end the messages of a broker are left to other workers. Default: `ledger`. */
  readonly lease?: Lease | undefined;
  readonly worker: string;
  readonly service: string;
  /** How long a stop waits for what is running. Default 25,000. */
  readonly stopDeadlineMs?: number;
}

const SUSPENDED = {
  ok: false,
  detail:
    "the database did not answer for a lease, so its messages were left to other workers; it comes back by itself",
};

/**
 * The loop of one consumer: receives, lists what it holds in the crash ledger, runs a bounded number at once — keys
 * side by side, one key in series — and settles each delivery after its effect has committed.
 */
export class Consumer implements Service {
  readonly name: string;
  readonly #parts: ConsumerParts;
  #current: Consuming | undefined;
  /** Set while consumption is given up because the database does not answer; resolves when it has ended. */
  #suspended: Promise<void> | undefined;
  #stopWatching: (() => void) | undefined;

  constructor(parts: ConsumerParts) {
    this.#parts = parts;
    this.name = parts.definition.name;
  }

  async start(): Promise<void> {
    if (this.#current !== undefined) return;
    const current = new Consuming(this.#parts);
    this.#current = current;
    try {
      await current.begin();
    } catch (error) {
      if (!isSagaboxError(error, "TRANSPORT_UNREACHABLE")) {
        this.#current = undefined;
        throw error;
      }
      this.#tryAgain(current, error);
    }
    const { ledger, lease = ledger, transport } = this.#parts;
    // Where the transport is the database itself, its leases run out there.
    if (isLocalTransport(transport)) return;
    this.#stopWatching = lease?.onLease({
      onLapse: () => this.#suspend(),
      onRecovery: () => void this.#resume(),
    });
  }

  // The broker sees a living member and would keep the messages here, where nothing can be done with them.
  #suspend(): void {
    const current = this.#current;
    if (current === undefined || this.#suspended !== undefined) return;
    this.#suspended = current.end(0).catch(() => undefined);
  }

  async #resume(): Promise<void> {
    const suspended = this.#suspended;
    await suspended;
    if (suspended === undefined || this.#suspended !== suspended) return;
    this.#suspended = undefined;
    const current = new Consuming(this.#parts);
    this.#current = current;
    await current.begin().catch((error: unknown) => this.#tryAgain(current, asError(error)));
  }

  // A broker that is down keeps nothing else from starting.
  #tryAgain(current: Consuming, error: Error, failures = 1): void {
    const { engine, transport } = this.#parts;
    const retryInMs = backoffMs({ firstMs: 500, maxMs: 15_000 }, failures);
    engine.observer.emit("transport.unreachable", {
      transport: transport.name,
      doing: `subscribing ${this.name}`,
      error: error.message,
      retryInMs,
    });
    after(
      retryInMs,
      () => {
        if (this.#current !== current) return;
        current.begin().catch((again: unknown) => {
          if (this.#current === current) this.#tryAgain(current, asError(again), failures + 1);
        });
      },
      { unref: true },
    );
  }

  /**
   * Takes nothing new, finishes what runs within the deadline, gives the rest back unharmed. Fails with SHUTDOWN_TIMEOUT,
   * after everything has ended, if handlers were cut off.
   */
  async stop(): Promise<void> {
    const current = this.#current;
    if (current === undefined) return;
    this.#stopWatching?.();
    const isSuspended = this.#suspended !== undefined;
    this.#suspended = undefined;
    try {
      await current.end();
    } catch (error) {
      if (!isSuspended) throw error; // what was cut off then was cut off before the stop
    } finally {
      if (this.#current === current) this.#current = undefined;
    }
  }

  health(): { readonly ok: boolean; readonly detail?: string } {
    if (this.#suspended !== undefined) return SUSPENDED;
    return this.#current?.health() ?? { ok: false, detail: "not started" };
  }
}
