import {
  after,
  backoffMs,
  type CancelTimer,
  Loop,
  randomToken,
  sleep,
  systemClock,
} from "../../runtime/index.ts";
import type { AssignedPartition } from "./assigned-partition.ts";
import type { Coordinator, Membership } from "./coordinator.ts";
import type { HeartbeatAnswer, OwnedPartitions } from "./driver.ts";
import { codes, codeText } from "./kafka-codes.ts";

export interface MemberParts {
  readonly coordinator: Coordinator;
  readonly topics: readonly string[];
  readonly sessionTimeoutMs: number;
  readonly handOverMs: number;
  /** Runs before the group is joined, and again until it succeeds. */
  readonly prepare: () => Promise<void>;
  /** Lists the owned partitions, including those that are being handed over. */
  readonly owned: () => readonly OwnedPartitions[];
  /** Called with all partitions that this member should own from now on. */
  readonly onAssigned: (assignment: readonly OwnedPartitions[]) => Promise<void>;
  /** Called when the broker has, or may have, assigned our partitions to other members. */
  readonly onFenced: () => void;
}

/** Added to our own hand-over deadline, so that it passes before the broker takes a partition away by force. */
const HAND_OVER_MARGIN_MS = 10_000;

/**
 * Membership in a consumer group of Kafka's newer protocol (KIP-848). Each heartbeat reports the partitions we own and
 * returns those we should own. A partition moves to another member only after a heartbeat without it, so deliveries in
 * flight are finished first.
 */
export class GroupMember {
  readonly #parts: MemberParts;
  readonly #id = randomToken();
  readonly #loop: Loop;
  readonly #joined: Promise<void>;
  #resolveJoined: () => void = () => undefined;
  #epoch = 0;
  #isPrepared = false;
  #answeredMs = -Infinity;
  #lastError: { readonly error: unknown } | undefined;
  #onError: ((error: unknown) => void) | undefined;

  constructor(parts: MemberParts) {
    this.#parts = parts;
    this.#joined = new Promise((resolve) => (this.#resolveJoined = resolve));
    this.#loop = new Loop({
      step: () => this.#step(),
      onError: (error) => this.#recordError(error),
      maxBackoffMs: 2_000,
    });
  }

  get membership(): Membership {
    return { member: this.#id, epoch: this.#epoch };
  }

  get lastError(): unknown {
    return this.#lastError?.error;
  }

  get isMember(): boolean {
    return this.#epoch > 0;
  }

  /** Resolves when we have joined the group; until then `onError` is called with each failure. */
  async start(onError: (error: unknown) => void): Promise<void> {
    this.#onError = onError;
    await this.#loop.start();
    await this.#joined;
  }

  /** Sends the next heartbeat at once. */
  wake(): void {
    this.#loop.wake();
  }

  /** Gives up all partitions and joins again; called when the broker no longer accepts this member. */
  loseMembership(): void {
    if (this.#epoch === 0) return;
    this.#epoch = 0;
    this.#parts.onFenced();
    this.#loop.wake();
  }

  async leave(): Promise<void> {
    await this.#loop.stop();
    if (this.#epoch === 0) return;
    this.#epoch = 0;
    await this.#sendHeartbeat(-1).catch(() => undefined);
  }

  async #step(): Promise<number> {
    this.#checkSession();
    if (!this.#isPrepared) await this.#parts.prepare();
    this.#isPrepared = true;
    const answer = await this.#sendHeartbeat(this.#epoch);
    switch (answer.code) {
      case codes.none:
        return this.#applyHeartbeat(answer);
      case codes.unknownMember:
      case codes.fencedMember:
        if (this.#epoch === 0) throw new Error(this.#describeAnswer(answer));
        this.loseMembership();
        return 0;
      default:
        throw new Error(this.#describeAnswer(answer));
    }
  }

  async #applyHeartbeat(answer: HeartbeatAnswer): Promise<number> {
    this.#answeredMs = systemClock.monotonicMs();
    this.#epoch = answer.epoch;
    if (answer.assignment !== null) await this.#parts.onAssigned(answer.assignment);
    this.#lastError = undefined;
    this.#resolveJoined();
    return answer.intervalMs;
  }

  // Without an answer for this long, the broker may have assigned our partitions to other members.
  #checkSession(): void {
    const silentMs = systemClock.monotonicMs() - this.#answeredMs;
    if (this.#epoch > 0 && silentMs > this.#parts.sessionTimeoutMs) this.loseMembership();
  }

  #sendHeartbeat(epoch: number): Promise<HeartbeatAnswer> {
    const { coordinator, topics, handOverMs } = this.#parts;
    return coordinator.heartbeat({
      member: this.#id,
      epoch,
      handOverMs: handOverMs + HAND_OVER_MARGIN_MS,
      topics,
      owned: epoch > 0 ? this.#parts.owned() : [],
    });
  }

  #describeAnswer({ code, detail }: HeartbeatAnswer): string {
    return `group ${this.#parts.coordinator.group}: ${detail === "" ? codeText(code) : detail}`;
  }

  #recordError(error: unknown): void {
    this.#lastError = { error };
    this.#checkSession();
    this.#onError?.(error);
  }
}

interface CommitterParts {
  readonly coordinator: Coordinator;
  readonly member: GroupMember;
  readonly partitions: () => Iterable<AssignedPartition>;
  readonly intervalMs: number;
}

const MAX_WAIT_MS = 2_000;
const MAX_FINAL_TRIES = 6;
const FINAL_BACKOFF = { firstMs: 50, maxMs: 300 };

/** Commits settled offsets with our member epoch, so that a member that was replaced can no longer commit. */
export class Committer {
  readonly #parts: CommitterParts;
  #timer: CancelTimer | undefined;
  #running: Promise<void> = Promise.resolve();
  #failures = 0;
  #closed = false;

  constructor(parts: CommitterParts) {
    this.#parts = parts;
  }

  /** Commits after `intervalMs`, or later after failures. */
  scheduleCommit(): void {
    if (this.#timer !== undefined || this.#closed) return;
    const backoff = { firstMs: this.#parts.intervalMs, maxMs: MAX_WAIT_MS, jitter: 0 };
    const waitMs = backoffMs(backoff, this.#failures + 1);
    this.#timer = after(waitMs, () => {
      this.#timer = undefined;
      void this.commitNow();
    });
  }

  /** Commits settled offsets. Resolves when the broker has answered, even if the commit failed. */
  commitNow(): Promise<void> {
    this.#running = this.#running.then(() => this.#runCommit());
    return this.#running;
  }

  /** Commits before partitions are released. It is retried a few times, because our epoch may be changing. */
  async commitFinally(): Promise<void> {
    for (let tries = 1; tries <= MAX_FINAL_TRIES; tries++) {
      await this.commitNow();
      if (this.#findUncommitted().length === 0 || !this.#parts.member.isMember) return;
      await sleep(backoffMs(FINAL_BACKOFF, tries));
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
      // A failed commit loses nothing: the next one covers it. The heartbeat reports the cause to health().
      this.#failures += 1;
    }
    if (this.#findUncommitted().length > 0) this.scheduleCommit();
  }

  async #send(): Promise<void> {
    const dirty = this.#findUncommitted();
    const { coordinator, member } = this.#parts;
    if (dirty.length === 0 || !member.isMember) return;
    // Keep the current trackers: the partition may have restarted with a new one when the answer arrives.
    const requested = dirty.map(({ topic, partition, offsets }) => ({
      topic,
      partition,
      offsets,
      offset: offsets.safe,
    }));
    const answers = await coordinator.commit(
      member.membership,
      requested.map(({ topic, partition, offset }) => ({ topic, partition, offset })),
    );
    for (const { topic, partition, offsets, offset } of requested) {
      const answer = answers.find((found) => found.topic === topic && found.partition === partition);
      if (answer?.code === codes.none) offsets.noteCommit(offset);
    }
    const failed = answers.find(({ code }) => code !== codes.none)?.code;
    if (failed === codes.unknownMember || failed === codes.fencedMember) member.loseMembership();
    else if (failed !== undefined) throw new Error(`commit: ${codeText(failed)}`);
  }

  #findUncommitted(): AssignedPartition[] {
    return [...this.#parts.partitions()].filter(
      ({ state, offsets }) => (state === "open" || state === "leaving") && offsets.safe > offsets.committed,
    );
  }
}
