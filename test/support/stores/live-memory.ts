import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** What a process really holds while something large passes through it: garbage does not count. */
export class LiveMemory {
  readonly #before = LiveMemory.#now();
  #max = this.#before;

  look(): void {
    this.#max = Math.max(this.#max, LiveMemory.#now());
  }

  /** How much more it was at most, in megabytes. */
  get grownMb(): number {
    return (this.#max - this.#before) / 1_048_576;
  }

  static #now(): number {
    collectGarbage();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  }
}
