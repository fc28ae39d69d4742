import { Loop, randomToken, systemClock } from "../../runtime/index.ts";
import type { Coordinator, Membership } from "./coordinator.ts";
import type { HeartbeatAnswer, OwnedPartitions } from "./driver.ts";
import { codes, codeText } from "./kafka-codes.ts";

export interface MemberParts {
  readonly coordinator: Coordinator;
  readonly topics: readonly string[];
  readonly sessionTimeoutMs: number;
  readonly handOverMs: number;
  /** What must be done before joining; done again until it works. */
  readonly prepare: () => Promise<void>;
  /** What we hold at this moment, also what we are about to give away. */
  readonly owned: () => readonly OwnedPartitions[];
  /** Everything that should be ours from now on. */
  readonly assigned: (assignment: readonly OwnedPartitions[]) => Promise<void>;
  /** The broker has given our partitions to others, or may have. */
  readonly fenced: () => void;
}

/** The broker lets us finish before it takes a partition away by force; our own deadline comes first. */
const HAND_OVER_MARGIN_MS = 10_000;

/**
 * Membership in a group of Kafka's newer protocol: each heartbeat says what we hold and hears what should be ours. A
 * partition goes to another member only after a heartbeat without it, so work in hand is finished before it moves.
 */
export class GroupMember {
  readonly #parts: MemberParts;
  readonly #id = randomToken();
  readonly #loop: Loop;
  readonly #joined: Promise<void>;
  #resolveJoined: () => void = () => undefined;
  #epoch = 0;
  #prepared = false;
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

  get trouble(): unknown {
    return this.#lastError?.error;
  }

  get isMember(): boolean {
    return this.#epoch > 0;
  }

  /** Resolves when the group has taken us in; `onTrouble` hears what stands in the way. */
  async start(onTrouble: (error: unknown) => void): Promise<void> {
    this.#onError = onTrouble;
    await this.#loop.start();
    await this.#joined;
  }

  /** The next heartbeat goes out at once. */
  wake(): void {
    this.#loop.wake();
  }

  /** A commit was told that we are no member any more. */
  loseMembership(): void {
    if (this.#epoch === 0) return;
    this.#epoch = 0;
    this.#parts.fenced();
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
    if (!this.#prepared) await this.#parts.prepare();
    this.#prepared = true;
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
    if (answer.assignment !== null) await this.#parts.assigned(answer.assignment);
    this.#lastError = undefined;
    this.#resolveJoined();
    return answer.intervalMs;
  }

  // After that long without an answer the broker may have given our partitions away.
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
