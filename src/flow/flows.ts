import { SagaboxError } from "../errors/index.ts";
import type { HandlerRegistry } from "../inbox/index.ts";
import { milliseconds, rejectUnknownKeys, wholeNumber, type Duration } from "../options/index.ts";
import type { Database } from "../storage/index.ts";
import type { Flow } from "./flow.ts";
import { buildPath, readRecordedEvents, type FlowPath } from "./flow-path.ts";
import { forgetFlowEvents, type ForgetFlowEventsOptions } from "./forget-flow-events.ts";
import { groupBy } from "./group-by.ts";
import { findOpenPaths } from "./open-paths.ts";
import { watchFlow, type WatchOptions } from "./watch-flow.ts";

export interface UnfinishedOptions {
  /** Only paths without a new event for this long. Default "15m". */
  readonly idleFor?: Duration | number;
  /** Only paths of this flow. Default: all flows watched by this bus. */
  readonly flow?: Flow;
  /** Upper bound for the number of paths, 1 to 10,000. Default 100. */
  readonly limit?: number;
}

export interface FlowsParts {
  readonly database: Database;
  readonly schema: string;
  readonly registry: HandlerRegistry;
}

/** Watches flows and reads the recorded paths (`bus.flows`). */
export class Flows {
  readonly #parts: FlowsParts;
  readonly #watched = new Map<string, Flow>();

  constructor(parts: FlowsParts) {
    this.#parts = parts;
  }

  /**
   * Records every event of the flow from the next `bus.run()` on. It is enough that one service watches a flow.
   * Throws FLOW_INVALID when a flow of this name is watched already.
   */
  watch(flow: Flow, options: WatchOptions = {}): void {
    if (this.#watched.has(flow.name)) {
      throw new SagaboxError("FLOW_INVALID", `A flow with the name "${flow.name}" is watched already.`);
    }
    watchFlow(this.#parts.registry, this.#parts.schema, flow, options);
    this.#watched.set(flow.name, flow);
  }

  /** Reads the paths of a correlation id: one for each watched flow that has recorded events. */
  async paths(correlationId: string): Promise<readonly FlowPath[]> {
    const { database, schema } = this.#parts;
    const events = groupBy(await readRecordedEvents(database, schema, correlationId), ({ flow }) => flow);
    return [...this.#watched.values()].flatMap((flow) => buildPath(flow, events.get(flow.name) ?? []) ?? []);
  }

  /** Finds paths that have not ended, or failed with an effect not undone. Per flow, longest idle first. */
  async unfinished(options: UnfinishedOptions = {}): Promise<readonly FlowPath[]> {
    rejectUnknownKeys("flows.unfinished", options, ["idleFor", "flow", "limit"]);
    const idleMs = milliseconds("flows.unfinished.idleFor", options.idleFor ?? "15m");
    const limit = wholeNumber("flows.unfinished.limit", options.limit ?? 100, { min: 1, max: 10_000 });
    const { database, schema } = this.#parts;
    const found: FlowPath[] = [];
    for (const flow of options.flow === undefined ? this.#watched.values() : [options.flow]) {
      for await (const path of findOpenPaths(database, schema, flow, { idleMs })) {
        if (found.push(path) >= limit) return found;
      }
    }
    return found;
  }

  /** Closes finished paths and deletes old ones. Resolves with the number of deleted events. */
  async forgetEvents(options: ForgetFlowEventsOptions): Promise<number> {
    const { database, schema } = this.#parts;
    const { signal } = options;
    for (const flow of this.#watched.values()) {
      const open = findOpenPaths(database, schema, flow, {
        idleMs: 0,
        ...(signal === undefined ? {} : { signal }),
      });
      for await (const _ of open); // findOpenPaths closes finished paths while it iterates
    }
    return forgetFlowEvents(database, schema, options);
  }
}
