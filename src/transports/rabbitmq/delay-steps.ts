const DAY_MS = 86_400_000;
const MAX_DAYS = 30;

/** Up to `until`, delays are rounded up to a multiple of `step`, so that few queues serve all of them. */
const delayStepsMs = [
  { until: 1_000, step: 100 },
  { until: 10_000, step: 500 },
  { until: 60_000, step: 5_000 },
  { until: 600_000, step: 30_000 },
  { until: 3_600_000, step: 300_000 },
  { until: DAY_MS, step: 3_600_000 },
  { until: MAX_DAYS * DAY_MS, step: DAY_MS },
];

/** Never less than was asked for; 0 needs no queue to wait in. */
export function roundToDelayStep(delayMs: number): number {
  const wanted = Math.min(Math.max(0, Math.ceil(delayMs)), MAX_DAYS * DAY_MS);
  const step = delayStepsMs.find(({ until }) => wanted <= until)?.step ?? DAY_MS;
  return Math.ceil(wanted / step) * step;
}

export interface WaitingQueue {
  readonly queue: string;
  readonly binding: string;
  /** Which waiting time, and which queue it comes back to when that is over. */
  readonly routingKey: (target: string) => string;
  readonly delayMs: number;
  /** After this long without a consumer the broker removes it, with all that is in it. */
  readonly expiresMs: number;
}

/**
 * The queue where messages of a service wait this long. It is used for one day and removed more than a day after the
 * last message can have left it: an expiring quorum queue does not notice that it is still written to.
 */
export function planWaitingQueue(
  prefix: string,
  service: string,
  delayMs: number,
  nowMs: number,
): WaitingQueue {
  const day = new Date(nowMs).toISOString().slice(0, 10).replaceAll("-", "");
  return {
    queue: `${prefix}.retry.${service}.${delayMs}ms.${day}`,
    binding: `${delayMs}ms.${day}.${prefix}.queue.${service}.#`,
    routingKey: (target) => `${delayMs}ms.${day}.${target}`,
    delayMs,
    expiresMs: 2 * DAY_MS + delayMs,
  };
}

/** Straight back to the end of the queue. */
export const immediateRoutingKey = (target: string): string => `0ms.now.${target}`;

/** What a queue binds with to get back whatever waited for it. */
export const returnBinding = (target: string): string => `*.*.${target}`;
