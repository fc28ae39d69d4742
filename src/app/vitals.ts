import { Loop, ProcessWatch, type Service } from "../runtime/index.ts";
import type { Parts } from "./parts.ts";

const EVERY_MS = 5_000;

/** How the process itself does, and the pool that everything in it waits for. */
export class Vitals implements Service {
  readonly #watch = new ProcessWatch();
  readonly #loop: Loop;

  constructor({ database, observer }: Pick<Parts, "database" | "observer">) {
    this.#loop = new Loop({
      step: async () => {
        observer.emit("process.measured", this.#watch.read());
        const usage = database.usage?.();
        if (usage !== undefined) observer.emit("pool.measured", { max: database.size, ...usage });
        return EVERY_MS;
      },
    });
  }

  async start(): Promise<void> {
    this.#watch.start();
    await this.#loop.start();
  }

  async stop(): Promise<void> {
    await this.#loop.stop();
    this.#watch.stop();
  }
}
