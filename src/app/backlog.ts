import { measureBacklog, measureDeadLetters, measureQueue } from "../outbox/index.ts";
import { Loop, type Service } from "../runtime/index.ts";
import { measureSagas } from "../saga/index.ts";
import { isLocalTransport } from "../transport/index.ts";
import type { Parts } from "./parts.ts";

const EVERY_MS = 5_000;
/** Queries that read rows instead of an index run only in every sixth round. */
const ROWS_EVERY = 6;

type BacklogParts = Pick<Parts, "database" | "observer" | "transport"> & {
  readonly settings: Pick<Parts["settings"], "schema">;
  readonly relay: Pick<Parts["relay"], "inFlight">;
};

/** Measures the backlog of the outbox, the queue and the dead letters every five seconds and emits the figures. */
export class Backlog implements Service {
  readonly #parts: BacklogParts;
  readonly #loop: Loop;
  /** Dead-letter groups of the last round. A group that has become empty is emitted once more, with count 0. */
  readonly #groups = new Map<string, { readonly consumer: string; readonly type: string }>();
  /** Queue depth by topic in the last round. A topic that has become empty is emitted once more, with depth 0. */
  #queued: ReadonlyMap<string, number> = new Map();
  #rounds = 0;

  constructor(parts: BacklogParts) {
    this.#parts = parts;
    this.#loop = new Loop({ step: () => this.#measure(), maxBackoffMs: EVERY_MS });
  }

  start(): Promise<void> {
    return this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #measure(): Promise<number> {
    const { database, settings, relay, observer } = this.#parts;
    const { pending, oldestMs, deadLetters, unownedLanes } = await measureBacklog(database, settings.schema);
    const claimed = relay.inFlight;
    observer.emit("backlog.measured", { pending, claimed, oldestAgeMs: oldestMs, deadLetters, unownedLanes });
    if (this.#rounds++ % ROWS_EVERY === 0) {
      await this.#countDeadLetters();
      await this.#countQueue();
    }
    return EVERY_MS;
  }

  /** Only for the PostgreSQL transport. The outbox's DepthWatch measures brokers. */
  async #countQueue(): Promise<void> {
    const { database, settings, observer, transport } = this.#parts;
    if (!isLocalTransport(transport)) return;
    const queued = await measureQueue(database, settings.schema);
    for (const topic of this.#queued.keys())
      if (!queued.has(topic)) observer.emit("depth.measured", { topic, depth: 0 });
    for (const [topic, depth] of queued) observer.emit("depth.measured", { topic, depth });
    this.#queued = queued;
  }

  async #countDeadLetters(): Promise<void> {
    const { database, settings, observer } = this.#parts;
    const empty = new Map(this.#groups);
    this.#groups.clear();
    for (const { consumer, type, count } of await measureDeadLetters(database, settings.schema)) {
      const key = JSON.stringify([consumer, type]);
      empty.delete(key);
      this.#groups.set(key, { consumer, type });
      observer.emit("dead_letters.measured", { consumer, type, count });
    }
    for (const group of empty.values()) observer.emit("dead_letters.measured", { ...group, count: 0 });
  }
}

/** Emits the number of saga instances by type and status every five seconds. Its database role must be able to read sagas. */
export function sagaBacklog({ database, settings, observer }: Parts): Service {
  return new Loop({
    step: async () => {
      for (const counted of await measureSagas(database, settings.schema))
        observer.emit("sagas.measured", counted);
      return EVERY_MS;
    },
    maxBackoffMs: EVERY_MS,
  });
}
