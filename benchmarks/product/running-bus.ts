import { createBus, type Bus, type BusOptions } from "../../src/index.ts";
import type { Observer } from "../../src/telemetry/index.ts";
import { order, OrderPlaced } from "./order-placed.ts";

/** A bus and the events it emits. Metrics are on and history is kept, as by default; only the log is quiet. */
export class RunningBus {
  readonly bus: Bus;
  /** What each read of the outbox found, and how long it took from when the one before it was answered. */
  readonly fetches: { readonly count: number; readonly durationMs: number }[] = [];
  #fetchedMs = 0;
  #settled = 0;
  #lanes = 0;
  readonly #waiting = new Set<{ readonly reached: () => boolean; readonly resolve: () => void }>();

  constructor(options: Omit<BusOptions, "service" | "log" | "observers">) {
    const emit: Observer["emit"] = (name, fields) => this.#onEvent(name, fields as unknown as EventFields);
    this.bus = createBus({ service: "bench", log: "error", observers: [{ emit }], ...options });
  }

  /** Runs and owns this many lanes. */
  async start(lanes = 256): Promise<void> {
    await this.bus.migrate();
    await this.bus.run();
    await this.owns(lanes);
  }

  owns(lanes: number): Promise<void> {
    return this.#until(() => this.#lanes === lanes);
  }

  /** Resolves when this many more messages have been published and settled. Ask before they are written. */
  settles(count: number): Promise<void> {
    const end = this.#settled + count;
    return this.#until(() => this.#settled >= end);
  }

  /** Writes a backlog in one transaction: the relay sees all of it or nothing. */
  async write(count: number, from = 0): Promise<void> {
    await this.bus.transaction(async (tx) => {
      for (let n = from; n < from + count; n++) await tx.publish(OrderPlaced, order(n));
    });
  }

  /** Events per second from the commit of a backlog until the last of it is settled. */
  async drain(count: number, write: () => Promise<void> = () => this.write(count)): Promise<number> {
    const settled = this.settles(count);
    await write();
    const began = performance.now();
    await settled;
    return (count / (performance.now() - began)) * 1000;
  }

  async stop(): Promise<void> {
    const { clean } = await this.bus.stop();
    if (!clean) throw new Error("the bus did not stop cleanly");
  }

  #until(reached: () => boolean): Promise<void> {
    if (reached()) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.add({ reached, resolve }));
  }

  // Two reads are asked for at once, and the second waits for the first on the session that they share.
  #onFetched({ count, durationMs }: EventFields): void {
    const nowMs = performance.now();
    this.fetches.push({ count, durationMs: Math.min(durationMs, nowMs - this.#fetchedMs) });
    this.#fetchedMs = nowMs;
  }

  #onEvent(name: string, fields: EventFields): void {
    if (name === "relay.published") this.#settled += fields.count;
    else if (name === "relay.fetched") this.#onFetched(fields);
    else if (name === "lanes.gained" && fields.scope === "outbox") this.#lanes += fields.lanes;
    else if (name.startsWith("lanes.") && fields.scope === "outbox") this.#lanes -= fields.lanes;
    else return;
    for (const entry of this.#waiting) {
      if (!entry.reached()) continue;
      this.#waiting.delete(entry);
      entry.resolve();
    }
  }
}

interface EventFields {
  readonly count: number;
  readonly durationMs: number;
  readonly lanes: number;
  readonly scope: string;
}
