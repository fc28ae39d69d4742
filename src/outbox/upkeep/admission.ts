import { SagaboxError } from "../../errors/index.ts";
import { replyContract } from "../../message/index.ts";
import { sleep, systemClock } from "../../runtime/index.ts";
import type { Database } from "../../storage/index.ts";
import type { Observer } from "../../telemetry/index.ts";
import type { OutboxSettings, OverflowPolicy } from "../options.ts";
import type { Outgoing } from "../outgoing.ts";
import { type DepthByTopic, Depths } from "./depths.ts";

interface Overflow {
  readonly topic: string;
  /** An estimate, at most one second old. */
  readonly depth: number;
  readonly limit: number;
}

/** Thrown when a topic has too many waiting messages. Nothing was written. */
export class OutboxFullError extends SagaboxError<"OUTBOX_FULL"> {
  readonly topic: string;
  readonly depth: number;
  readonly limit: number;

  constructor({ topic, depth, limit }: Overflow, remedy: string) {
    super(
      "OUTBOX_FULL",
      `About ${depth} messages wait for topic "${topic}", the limit is ${limit}. ${remedy}`,
    );
    this.topic = topic;
    this.depth = depth;
    this.limit = limit;
  }
}

Object.defineProperty(OutboxFullError.prototype, "name", {
  value: "OutboxFullError",
  writable: true,
  configurable: true,
});

export interface AdmissionOptions {
  readonly database: Database;
  readonly schema: string;
  /** Null admits everything and counts nothing. */
  readonly overflow: OutboxSettings["overflow"];
  readonly observer: Observer;
}

export type AdmissionVerdict =
  | { readonly kind: "admit" }
  | { readonly kind: "refuse"; readonly overflow: Overflow }
  | { readonly kind: "drop"; readonly full: ReadonlyMap<string, Overflow> };

const LOOK_AGAIN_MS = 250;
/**
 * A waiting caller continues below this share of the limit, so that it does not stop again after each
 * message.
 */
const RESUME_AT = 0.9;

/** Pure: decides about messages for these topics inside a transaction, where waiting is not possible. */
export function decideAdmission(
  topics: readonly string[],
  depths: DepthByTopic,
  { maxPending, policy }: { readonly maxPending: number; readonly policy: OverflowPolicy },
): AdmissionVerdict {
  const full = fullTopics(topics, depths, maxPending);
  const [first] = full.values();
  if (first === undefined) return { kind: "admit" };
  return policy === "drop" ? { kind: "drop", full } : { kind: "refuse", overflow: first };
}

/** Limits the number of waiting messages per topic. */
export class Admission {
  readonly #options: AdmissionOptions;
  readonly #depths: Depths;

  constructor(options: AdmissionOptions) {
    this.#options = options;
    this.#depths = new Depths(options.database, options.schema);
  }

  get active(): boolean {
    return this.#options.overflow !== null;
  }

  /**
   * Returns the messages that may be written. Throws OUTBOX_FULL unless the policy is "drop". Scheduled
   * messages are always admitted.
   */
  async admit(outgoing: readonly Outgoing[]): Promise<readonly Outgoing[]> {
    const { overflow } = this.#options;
    if (overflow === null) return outgoing;
    const now = outgoing.filter((one) => one.schedule === null);
    const topics = [...new Set(now.map((one) => one.message.topic))];
    const verdict = decideAdmission(topics, await this.#depths.now(), overflow);
    if (verdict.kind === "admit") return outgoing;
    if (verdict.kind === "refuse") throw this.#refuse(verdict.overflow, remedies[overflow.policy]);
    return outgoing.filter((one) => this.#isAdmitted(one, verdict.full));
  }

  /**
   * Under the policy "wait", waits until the topics have room, or throws OUTBOX_FULL after the timeout. Only
   * for use before BEGIN.
   */
  async admitBefore(topics: readonly string[], signal?: AbortSignal): Promise<void> {
    const { overflow } = this.#options;
    if (overflow?.policy !== "wait") return;
    const untilMs = systemClock.monotonicMs() + overflow.timeoutMs;
    let limit = overflow.maxPending;
    for (;;) {
      signal?.throwIfAborted();
      const [first] = fullTopics(topics, await this.#depths.now(), limit).values();
      if (first === undefined) return;
      limit = Math.max(1, Math.floor(overflow.maxPending * RESUME_AT));
      const leftMs = untilMs - systemClock.monotonicMs();
      if (leftMs <= 0) throw this.#refuse({ ...first, limit: overflow.maxPending }, TIMED_OUT);
      await sleep(Math.min(LOOK_AGAIN_MS, leftMs), signal);
    }
  }

  close(): Promise<void> {
    return this.#depths.close();
  }

  #refuse(overflow: Overflow, remedy: string): OutboxFullError {
    const { topic, depth } = overflow;
    this.#options.observer.emit("outbox.refused", { topic, policy: "refuse", depth });
    return new OutboxFullError(overflow, remedy);
  }

  #isAdmitted({ message, schedule }: Outgoing, full: ReadonlyMap<string, Overflow>): boolean {
    const { topic } = message;
    const overflow = full.get(topic);
    if (schedule !== null || overflow === undefined || isAwaited(message)) return true;
    this.#options.observer.emit("outbox.refused", { topic, policy: "drop", depth: overflow.depth });
    return false;
  }
}

/**
 * Returns true for commands of sagas and for replies: if one were dropped, the saga or the requester could
 * only time out.
 */
function isAwaited({ kind, type, sagaId }: Outgoing["message"]): boolean {
  return type === REPLY || (kind === "command" && sagaId !== null);
}

const REPLY = replyContract("replies.any").name;

const FIND_OUT = "Find out why they are not sent (is a relay running, is the broker up?)";
const TIMED_OUT = `Timed out while waiting for room. ${FIND_OUT}, or raise outbox.overflow.timeout or .maxPending.`;

const remedies: Readonly<Record<OverflowPolicy, string>> = {
  refuse: `Nothing was written. ${FIND_OUT}, try again later, or raise outbox.overflow.maxPending.`,
  wait: `Nothing was written, because waiting is not possible inside a transaction. Call bus.admit() before BEGIN. ${FIND_OUT}.`,
  drop: "",
};

function fullTopics(
  topics: readonly string[],
  depths: DepthByTopic,
  limit: number,
): ReadonlyMap<string, Overflow> {
  return new Map(
    topics.flatMap((topic) => {
      const depth = depths.get(topic) ?? 0;
      return depth >= limit ? [[topic, { topic, depth, limit }] as const] : [];
    }),
  );
}
