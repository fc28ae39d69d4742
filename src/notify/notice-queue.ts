import { errorText } from "../errors/index.ts";
import { random, sleep, withDeadline, withJitter } from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { DeadLetterNotice } from "./dead-letter-notice.ts";

/** Thrown by `deliver` when another attempt could not help. */
export class PermanentNoticeError extends Error {}

export interface NoticeQueueOptions {
  readonly via: "hook" | "webhook";
  readonly observer: Observer;
  readonly deadlineMs: number;
  readonly attempts: number;
  readonly firstWaitMs?: number;
  /** How many run at once. Default 4. */
  readonly concurrency?: number;
  /** How many may wait; the next ones are let go, and counted. Default 1,000. */
  readonly capacity?: number;
  /** `missed`: how many notices were let go since the last one that got through. */
  readonly deliver: (notice: DeadLetterNotice, missed: number, signal: AbortSignal) => Promise<void>;
}

const MAX_WAIT_MS = 30_000;

/** Tells one party of dead letters, a few at a time, each within its deadline. Whatever happens in here stays in here. */
export class NoticeQueue {
  readonly #options: NoticeQueueOptions;
  readonly #waiting: DeadLetterNotice[] = [];
  readonly #running = new Set<Promise<void>>();
  readonly #closing = new AbortController();
  #active = 0;
  #missed = 0;

  constructor(options: NoticeQueueOptions) {
    this.#options = options;
  }

  push(notice: DeadLetterNotice): void {
    const { concurrency = 4, capacity = 1_000 } = this.#options;
    if (this.#waiting.length >= capacity || this.#closing.signal.aborted) return this.#drop(notice);
    this.#waiting.push(notice);
    if (this.#active >= concurrency) return;
    this.#active += 1;
    const run = this.#work().finally(() => this.#running.delete(run));
    this.#running.add(run);
  }

  /** Goes on for at most this long, then lets go of the rest. */
  async close(withinMs: number): Promise<void> {
    await withDeadline(Promise.all(this.#running), withinMs, () => undefined);
    this.#closing.abort();
    for (const notice of this.#waiting.splice(0)) this.#drop(notice);
    await withDeadline(Promise.all(this.#running), 100, () => undefined);
  }

  async #work(): Promise<void> {
    for (let notice = this.#waiting.shift(); notice !== undefined; notice = this.#waiting.shift()) {
      await this.#deliverWithRetries(notice);
    }
    this.#active -= 1; // at once: what is pushed from here on needs a new worker
  }

  async #deliverWithRetries(notice: DeadLetterNotice): Promise<void> {
    const { via, observer, attempts, firstWaitMs = 1_000 } = this.#options;
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#deliver(notice);
        return observer.emit("notice.sent", { via, id: notice.messageId });
      } catch (thrown) {
        const over = attempt >= attempts || thrown instanceof PermanentNoticeError;
        const waitMs = withJitter(Math.min(MAX_WAIT_MS, firstWaitMs * 2 ** (attempt - 1)), 0.3, random);
        if (over || !(await sleep(waitMs, this.#closing.signal))) {
          const error = errorText(thrown).slice(0, 500);
          this.#missed += 1;
          return observer.emit("notice.failed", { via, id: notice.messageId, attempt, error });
        }
      }
    }
  }

  async #deliver(notice: DeadLetterNotice): Promise<void> {
    const { deliver, deadlineMs } = this.#options;
    const missed = this.#missed;
    const abort = new AbortController();
    // A hook that throws before its first await throws in here as well.
    const work = Promise.resolve().then(() => deliver(notice, missed, abort.signal));
    await withDeadline(work, deadlineMs, () => {
      abort.abort();
      throw new Error(`no end within ${deadlineMs} ms`);
    });
    this.#missed -= missed;
  }

  #drop({ messageId: id }: DeadLetterNotice): void {
    this.#missed += 1;
    this.#options.observer.emit("notice.dropped", { via: this.#options.via, id });
  }
}
