import { measureBacklog, measureDeadLetters } from "../outbox/index.ts";
import { Loop, type Service } from "../runtime/index.ts";
import { measureSagas } from "../saga/index.ts";
import type { Parts } from "./parts.ts";

const EVERY_MS = 5_000;
/** What reads rows instead of counting in an index is looked at less often. */
const LETTERS_EVERY = 6;

/** Looks now and then how much is waiting, for the gauges and for people. */
export class Backlog implements Service {
  readonly #parts: Parts;
  readonly #loop: Loop;
  /** Groups that were told: once they are empty, that is told too. */
  readonly #groups = new Map<string, { readonly consumer: string; readonly type: string }>();
  #looks = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#loop = new Loop({ step: () => this.#look(), maxBackoffMs: EVERY_MS });
  }

  start(): Promise<void> {
    return this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #look(): Promise<number> {
    const { database, settings, relay, observer } = this.#parts;
    const { pending, oldestMs, deadLetters, unownedLanes } = await measureBacklog(database, settings.schema);
    const claimed = relay.inFlight;
    observer.tell("backlog.measured", { pending, claimed, oldestAgeMs: oldestMs, deadLetters, unownedLanes });
    if (this.#looks++ % LETTERS_EVERY === 0) await this.#countLetters();
    return EVERY_MS;
  }

  async #countLetters(): Promise<void> {
    const { database, settings, observer } = this.#parts;
    const empty = new Map(this.#groups);
    this.#groups.clear();
    for (const { consumer, type, count } of await measureDeadLetters(database, settings.schema)) {
      const key = JSON.stringify([consumer, type]);
      empty.delete(key);
      this.#groups.set(key, { consumer, type });
      observer.tell("dead_letters.measured", { consumer, type, count });
    }
    for (const group of empty.values()) observer.tell("dead_letters.measured", { ...group, count: 0 });
  }
}

/** The same for sagas, by those who may read them. */
export function sagaBacklog({ database, settings, observer }: Parts): Service {
  return new Loop({
    step: async () => {
      for (const counted of await measureSagas(database, settings.schema))
        observer.tell("sagas.measured", counted);
      return EVERY_MS;
    },
    maxBackoffMs: EVERY_MS,
  });
}
