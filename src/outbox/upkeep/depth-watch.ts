import { SagaboxError } from "../../errors/index.ts";
import { Loop, withDeadline, type Service } from "../../runtime/index.ts";
import type { Observer } from "../../telemetry/index.ts";
import type { Transport } from "../../transport/index.ts";
import type { Destinations } from "../destinations.ts";
import { failureText } from "../failures.ts";
import type { OutboxSettings } from "../options.ts";

type Limits = NonNullable<OutboxSettings["brokerDepth"]>;

export interface DepthWatchOptions {
  readonly transport: Transport;
  readonly destinations: Destinations;
  readonly limits: Limits;
  readonly observer: Observer;
}

/** Topics nothing was sent to for longer than this are not asked about. */
const RECENT_MS = 60_000;
const LONGEST_ASK_MS = 5_000;
/** After this many looks in vain paused topics go on: not knowing must not stop messages. */
const PATIENCE = 5;

/** Pure. Between the two bounds everything stays as it is, so that a topic does not start and stop with every look. */
export function depthVerdict(
  depth: number,
  paused: boolean,
  { limit, resumeAt }: Pick<Limits, "limit" | "resumeAt">,
): "pause" | "resume" | "stay" {
  if (!paused) return depth >= limit ? "pause" : "stay";
  return depth <= resumeAt ? "resume" : "stay";
}

/** Asks the broker now and then how much waits there, and pauses a topic that is full until it has been drained. */
export class DepthWatch implements Service {
  readonly #options: DepthWatchOptions;
  readonly #loop: Loop;
  /** How often in a row nothing was told about a topic that is paused. */
  readonly #untold = new Map<string, number>();

  constructor(options: DepthWatchOptions) {
    const { transport, limits } = options;
    if (transport.depths === undefined) throw cannotTell(transport.name);
    this.#options = options;
    this.#loop = new Loop({
      step: async () => {
        await this.#look();
        return limits.everyMs;
      },
      onError: (error, failures) => this.#failed(error, failures),
      backoffMs: limits.everyMs,
      maxBackoffMs: Math.max(limits.everyMs, 30_000),
    });
  }

  start(): Promise<void> {
    return this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #look(): Promise<void> {
    const { destinations, limits, observer, transport } = this.#options;
    const topics = [...new Set([...destinations.recent(RECENT_MS), ...destinations.paused()])];
    if (topics.length === 0) return;
    const asked = transport.depths?.(topics) ?? Promise.resolve(new Map<string, number>());
    const depths = await withDeadline(asked, LONGEST_ASK_MS, () => {
      throw new Error(`no answer within ${LONGEST_ASK_MS} ms`);
    });
    const paused = new Set(destinations.paused());
    for (const topic of topics) {
      const depth = depths.get(topic);
      if (depth === undefined) {
        if (paused.has(topic)) this.#miss(topic);
        continue;
      }
      this.#untold.delete(topic);
      observer.tell("depth.measured", { topic, depth });
      const verdict = depthVerdict(depth, paused.has(topic), limits);
      if (verdict === "pause") destinations.pause(topic, depth);
      else if (verdict === "resume") destinations.resume(topic, depth);
    }
  }

  // Not told is not empty: nothing is decided by it, except that a topic is not paused for ever.
  #miss(topic: string): void {
    const { destinations, observer } = this.#options;
    const failures = (this.#untold.get(topic) ?? 0) + 1;
    this.#untold.set(topic, failures);
    observer.tell("depth.unknown", { failures, error: `nothing was told about the topic "${topic}"` });
    if (failures < PATIENCE) return;
    this.#untold.delete(topic);
    destinations.resume(topic, null);
  }

  #failed(error: unknown, failures: number): void {
    const { destinations, observer } = this.#options;
    observer.tell("depth.unknown", { failures, error: failureText(error) });
    if (failures >= PATIENCE) for (const topic of destinations.paused()) destinations.resume(topic, null);
  }
}

function cannotTell(transport: string): SagaboxError {
  return new SagaboxError(
    "OPTIONS_INVALID",
    `outbox.brokerDepth was given, but the transport "${transport}" does not tell how much waits at the broker. ` +
      "Leave it out, or bound the outbox itself with outbox.overflow.",
  );
}
