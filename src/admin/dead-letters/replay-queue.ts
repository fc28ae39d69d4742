import { streamFor } from "../../message/index.ts";
import type { Candidate } from "./replay-dead-letters.ts";

interface Cursor {
  readonly place: string;
  readonly writtenAt: string;
  readonly messageId: string;
}

/** Reads so many letters behind the cursor, in the order of their messages. */
export type ReadCandidates = (after: Cursor, limit: number) => Promise<readonly Candidate[]>;

const START: Cursor = { place: "-2", writtenAt: "-infinity", messageId: "" };
const WINDOW = 500;
/** How many letters may be passed over in vain while others are on their way that they may be waiting for. */
const MAX_PASSED_OVER = 2 * WINDOW;

/**
 * The letters of a cause in the order of their messages, pass after pass. A key of which one letter had to wait is left
 * alone for the rest of the pass, so none of its letters overtakes it.
 */
export class ReplayQueue {
  readonly #read: ReadCandidates;
  #cursor = START;
  #window: readonly Candidate[] = [];
  #at = 0;
  #ended = false;
  #passedOver = 0;
  readonly #skippedStreams = new Set<string>();

  constructor(read: ReadCandidates) {
    this.#read = read;
  }

  /** The next that may go, as far as one window reaches; none of a key in `moving`, and one of each unless `together`. */
  async take(limit: number, moving: ReadonlySet<string>, together: boolean): Promise<readonly Candidate[]> {
    if (this.#at >= this.#window.length) await this.#readWindow();
    const taken: Candidate[] = [];
    const keys = new Set<string>();
    for (; this.#at < this.#window.length && taken.length < limit; this.#at++) {
      const letter = this.#window[this.#at];
      if (letter === undefined) break;
      const stream = letter.key === null ? undefined : streamFor(letter.topic, letter.key);
      if (stream !== undefined) {
        const waits = letter.waits || moving.has(stream) || (!together && keys.has(stream));
        if (waits) this.#skippedStreams.add(stream);
        if (this.#skippedStreams.has(stream)) {
          this.#passedOver += 1;
          continue;
        }
        keys.add(stream);
      }
      taken.push(letter);
    }
    if (taken.length > 0) this.#passedOver = 0;
    return taken;
  }

  /** True when the rest of the pass is not worth reading before something has come of what was replayed in it. */
  isOver(replayedInPass: number): boolean {
    const seen = this.#at >= this.#window.length;
    return (this.#ended && seen) || (replayedInPass > 0 && this.#passedOver >= MAX_PASSED_OVER);
  }

  restart(): void {
    this.#cursor = START;
    this.#window = [];
    this.#at = 0;
    this.#ended = false;
    this.#passedOver = 0;
    this.#skippedStreams.clear();
  }

  async #readWindow(): Promise<void> {
    this.#window = this.#ended ? [] : await this.#read(this.#cursor, WINDOW);
    this.#at = 0;
    this.#ended = this.#window.length < WINDOW;
    const last = this.#window.at(-1);
    if (last !== undefined)
      this.#cursor = { place: last.place, writtenAt: last.written_at, messageId: last.message_id };
  }
}
