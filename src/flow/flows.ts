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
  /** Only paths on which nothing was seen for this long. Default "15m". */
  readonly idleFor?: Duration | number;
  /** Only of this flow. Default: of all that are watched here. */
  readonly flow?: Flow;
  /** Default 100. */
  readonly limit?: number;
}

export interface FlowsParts {
  readonly database: Database;
  readonly schema: string;
  readonly registry: HandlerRegistry;
}

/** The flows a bus watches, and the paths it has recorded of them. */
export class Flows {
  readonly #parts: FlowsParts;
  readonly #watched = new Map<string, Flow>();

  constructor(parts: FlowsParts) {
    this.#parts = parts;
  }

  /** Records every event of the flow from the next `bus.run()` on. One service that watches is enough. */
  watch(flow: Flow, options: WatchOptions = {}): void {
    if (this.#watched.has(flow.name)) {
      throw new SagaboxError("FLOW_INVALID", `A flow with the name "${flow.name}" is watched already.`);
    }
    watchFlow(this.#parts.registry, this.#parts.schema, flow, options);
    this.#watched.set(flow.name, flow);
  }

  /** What happened under the correlation id: one path for each watched flow it belongs to. */
  async paths(correlationId: string): Promise<readonly FlowPath[]> {
    const { database, schema } = this.#parts;
    const events = groupBy(await readRecordedEvents(database, schema, correlationId), ({ flow }) => flow);
    return [...this.#watched.values()].flatMap((flow) => buildPath(flow, events.get(flow.name) ?? []) ?? []);
  }

  /** Paths that have not ended, or failed with an effect left standing; the quietest of each flow first. */
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

  /** Closes what has ended and forgets what is old. Resolves with how many events were forgotten. */
  async forgetEvents(options: ForgetFlowEventsOptions): Promise<number> {
    const { database, schema } = this.#parts;
    const { signal } = options;
    for (const flow of this.#watched.values()) {
      const open = findOpenPaths(database, schema, flow, {
        idleMs: 0,
        ...(signal === undefined ? {} : { signal }),
      });
      for await (const _ of open); // what is finished is closed as it is met
    }
    return forgetFlowEvents(database, schema, options);
  }
}
