import { after, sleep, type CancelTimer } from "../../runtime/index.ts";
import type { AssignedPartition } from "./assigned-partition.ts";
import type { Coordinator } from "./coordinator.ts";
import type { GroupMember } from "./group-member.ts";
import { codes, codeText } from "./kafka-codes.ts";

interface CommitterParts {
  readonly coordinator: Coordinator;
  readonly member: GroupMember;
  readonly partitions: () => Iterable<AssignedPartition>;
  readonly intervalMs: number;
}

const MAX_WAIT_MS = 2_000;
const MAX_FINAL_TRIES = 6;
const FINAL_WAIT_MS = 50;

/** Writes down how far each partition is done, with our epoch: a member that was replaced can no longer commit. */
export class Committer {
  readonly #parts: CommitterParts;
  #timer: CancelTimer | undefined;
  #running: Promise<void> = Promise.resolve();
  #failures = 0;
  #closed = false;

  constructor(parts: CommitterParts) {
    this.#parts = parts;
  }

  /** Something was settled: it will be committed soon. */
  scheduleCommit(): void {
    if (this.#timer !== undefined || this.#closed) return;
    const waitMs = Math.min(MAX_WAIT_MS, this.#parts.intervalMs * 2 ** Math.min(this.#failures, 10));
    this.#timer = after(waitMs, () => {
      this.#timer = undefined;
      void this.commitNow();
    });
  }

  /** Commits what is done; resolves when the broker has answered, also if it could not take it. */
  commitNow(): Promise<void> {
    this.#running = this.#running.then(() => this.#runCommit());
    return this.#running;
  }

  /** The last commits before partitions go: tried a few times, since our epoch may be changing at this moment. */
  async commitFinally(): Promise<void> {
    for (let tries = 1; tries <= MAX_FINAL_TRIES; tries++) {
      await this.commitNow();
      if (this.#findUncommitted().length === 0 || !this.#parts.member.isMember) return;
      await sleep(tries * FINAL_WAIT_MS);
    }
  }

  close(): void {
    this.#closed = true;
    this.#timer?.();
  }

  async #runCommit(): Promise<void> {
    try {
      await this.#send();
      this.#failures = 0;
    } catch {
      // Nothing is lost by a commit that fails: the next one says more. The heartbeat tells people what is wrong.
      this.#failures += 1;
    }
    if (this.#findUncommitted().length > 0) this.scheduleCommit();
  }

  async #send(): Promise<void> {
    const dirty = this.#findUncommitted();
    const { coordinator, member } = this.#parts;
    if (dirty.length === 0 || !member.isMember) return;
    // The line as it is now: by the time of the answer the partition may have begun another one.
    const asked = dirty.map(({ topic, partition, line }) => ({ topic, partition, line, offset: line.safe }));
    const answers = await coordinator.commit(
      member.membership,
      asked.map(({ topic, partition, offset }) => ({ topic, partition, offset })),
    );
    for (const { topic, partition, line, offset } of asked) {
      const answer = answers.find((found) => found.topic === topic && found.partition === partition);
      if (answer?.code === codes.none) line.noteCommit(offset);
    }
    const failed = answers.find(({ code }) => code !== codes.none)?.code;
    if (failed === codes.unknownMember || failed === codes.fencedMember) member.loseMembership();
    else if (failed !== undefined) throw new Error(`commit: ${codeText(failed)}`);
  }

  #findUncommitted(): AssignedPartition[] {
    return [...this.#parts.partitions()].filter(
      ({ state, line }) => (state === "open" || state === "leaving") && line.safe > line.committed,
    );
  }
}
