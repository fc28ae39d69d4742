import { SagaboxError } from "../../errors/index.ts";
import { type FailedRound, PeriodicService, withDeadline } from "../../runtime/index.ts";
import type { Observer } from "../../telemetry/index.ts";
import type { Transport } from "../../transport/index.ts";
import type { Destinations } from "../destinations.ts";
import { printableErrorText } from "../settler.ts";
import type { OutboxSettings } from "../options.ts";

type Limits = NonNullable<OutboxSettings["brokerDepth"]>;

export interface DepthWatchOptions {
  readonly transport: Transport;
  readonly destinations: Destinations;
  /** Null: no topic is paused, and depths are only emitted. */
  readonly limits: Limits | null;
  /** Topics that this process consumes. Their depth is always read. */
  readonly consumed: () => readonly string[];
  /** How often depths are read without limits, in milliseconds. Default 30,000. */
  readonly shownEveryMs?: number;
  readonly observer: Observer;
}

/** Topics without sends for longer than this are read only until they are empty, in milliseconds. */
const RECENT_MS = 60_000;
/** Interval of reads that only feed the metric, in milliseconds. */
const EMIT_EVERY_MS = 30_000;
const MAX_BACKOFF_MS = 300_000;
const MAX_MEASURE_MS = 5_000;
/**
 * After this many failed reads paused topics are resumed and the metric is removed: an unknown depth must not
 * stop messages.
 */
const PATIENCE = 5;

/**
 * Pure: compares a depth with the limits. Between the two limits nothing changes, so that a topic does not
 * alternate with each read.
 */
export function depthVerdict(
  depth: number,
  paused: boolean,
  { limit, resumeAt }: Pick<Limits, "limit" | "resumeAt">,
): "pause" | "resume" | "stay" {
  if (!paused) return depth >= limit ? "pause" : "stay";
  return depth <= resumeAt ? "resume" : "stay";
}

/**
 * Reads the depth of topics from the broker at intervals, for the metric and alerts on slow consumers. With
 * limits it also pauses a full topic until it is drained.
 */
export class DepthWatch extends PeriodicService {
  readonly #options: DepthWatchOptions;
  /** Topics that were not empty at the last read. */
  readonly #filled = new Set<string>();
  /** Topics whose depth is in the metric. */
  readonly #emitted = new Set<string>();
  /** Number of reads in a row without a depth, per paused or emitted topic. */
  readonly #missedReadings = new Map<string, number>();
  #isFirst = true;

  constructor(options: DepthWatchOptions) {
    const { transport, limits, shownEveryMs = EMIT_EVERY_MS } = options;
    if (transport.depths === undefined) throw depthUnsupported(transport.name);
    const everyMs = limits?.everyMs ?? shownEveryMs;
    const maxMs = limits === null ? MAX_BACKOFF_MS : Math.max(everyMs, 30_000);
    super({ everyMs, backoff: { firstMs: everyMs, maxMs } });
    this.#options = options;
  }

  protected override async runRound(): Promise<void> {
    // Skips the first read: nothing has been sent yet, and consumers are about to subscribe.
    if (!this.#isFirst) await this.#readDepths();
    this.#isFirst = false;
  }

  async #readDepths(): Promise<void> {
    const { destinations, transport, consumed } = this.#options;
    const sent = new Set([...destinations.listAnswered(RECENT_MS), ...destinations.listPaused()]);
    const topics = [...new Set([...sent, ...consumed(), ...this.#filled])];
    if (topics.length === 0) return;
    const reading = transport.depths?.(topics) ?? Promise.resolve(new Map<string, number>());
    const depths = await withDeadline(reading, MAX_MEASURE_MS, () => {
      throw new Error(`no answer within ${MAX_MEASURE_MS} ms`);
    });
    const paused = new Set(destinations.listPaused());
    for (const topic of topics) {
      const depth = depths.get(topic);
      if (depth === undefined) this.#miss(topic, paused.has(topic));
      else {
        this.#emitDepth(topic, depth);
        if (sent.has(topic)) this.#judge(topic, depth, paused.has(topic));
      }
    }
  }

  #emitDepth(topic: string, depth: number): void {
    this.#missedReadings.delete(topic);
    this.#emitted.add(topic);
    if (depth > 0) this.#filled.add(topic);
    else this.#filled.delete(topic);
    this.#options.observer.emit("depth.measured", { topic, depth });
  }

  #judge(topic: string, depth: number, paused: boolean): void {
    const { destinations, limits } = this.#options;
    if (limits === null) return;
    const verdict = depthVerdict(depth, paused, limits);
    if (verdict === "pause") destinations.pause(topic, depth);
    else if (verdict === "resume") destinations.resume(topic, depth);
  }

  // A missing depth does not mean empty. Nothing is decided by it, except that a topic is neither paused nor
  // emitted for ever.
  #miss(topic: string, paused: boolean): void {
    if (!paused && !this.#emitted.has(topic)) return;
    const { destinations, observer } = this.#options;
    const failures = (this.#missedReadings.get(topic) ?? 0) + 1;
    this.#missedReadings.set(topic, failures);
    if (paused)
      observer.emit("depth.unknown", {
        failures,
        error: `the broker reported no depth for topic "${topic}"`,
      });
    if (failures < PATIENCE) return;
    this.#missedReadings.delete(topic);
    this.#filled.delete(topic);
    this.#hide(topic);
    destinations.resume(topic, null);
  }

  protected override onFailure({ error, failuresInARow: failures }: FailedRound): void {
    const { destinations, observer } = this.#options;
    observer.emit("depth.unknown", { failures, error: printableErrorText(error) });
    if (failures < PATIENCE) return;
    for (const topic of destinations.listPaused()) destinations.resume(topic, null);
    for (const topic of this.#emitted) this.#hide(topic);
  }

  // Removes the metric of a topic, because a stale value must not trigger alerts.
  #hide(topic: string): void {
    if (this.#emitted.delete(topic)) this.#options.observer.emit("depth.forgotten", { topic });
  }
}

function depthUnsupported(transport: string): SagaboxError {
  return new SagaboxError(
    "OPTIONS_INVALID",
    `outbox.brokerDepth was given, but the transport "${transport}" does not report how many messages wait at the broker. ` +
      "Leave it out, or bound the outbox itself with outbox.overflow.",
  );
}
