import { measureBacklog } from "../outbox/index.ts";
import { Loop, type Service } from "../runtime/index.ts";
import type { Parts } from "./parts.ts";

const EVERY_MS = 5_000;

/** Looks now and then how much is waiting, for the gauges and for people. */
export class Backlog implements Service {
  readonly #loop: Loop;

  constructor({ database, settings, relay, observer }: Parts) {
    this.#loop = new Loop({
      step: async () => {
        const { pending, oldestMs, deadLetters } = await measureBacklog(database, settings.schema);
        observer.tell("backlog.measured", {
          pending,
          claimed: relay.inFlight,
          oldestAgeMs: oldestMs,
          deadLetters,
        });
        return EVERY_MS;
      },
      maxBackoffMs: EVERY_MS,
    });
  }

  start(): Promise<void> {
    return this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }
}
