/** One setting, measured: how fast messages were written, and how fast they were read and settled. */
export interface Measurement {
  readonly batchSize: number;
  readonly concurrency: number;
  readonly write: Speed;
  readonly drain: Speed;
}

/** Throughput and latency at one number of concurrent handlers. */
export interface Handling {
  readonly concurrency: number;
  readonly handled: Speed;
}

export interface Speed {
  readonly perSecond: number;
  /** Of one batch, or of one message where they are handled one by one. */
  readonly p50Ms: number;
  readonly p95Ms: number;
}

export interface Proposal {
  readonly setting: string;
  readonly value: string;
  readonly why: string;
}

export interface Machine {
  readonly cores: number;
  /** Whether those are the cores of the database server. */
  readonly sameMachine: boolean;
  /** Connections the server gives to all together. */
  readonly usableConnections: number;
}

/** How much slower than the best a smaller setting may be. */
const TOLERANCE = 0.05;

/** Pure. The smallest setting within 5 % of the fastest: more would only cost memory, latency and connections. */
export function chooseMeasurement(measured: readonly Measurement[]): Measurement | undefined {
  const best = Math.max(0, ...measured.map(({ drain }) => drain.perSecond));
  return measured
    .filter(({ drain }) => drain.perSecond >= best * (1 - TOLERANCE))
    .toSorted((a, b) => a.concurrency - b.concurrency || a.batchSize - b.batchSize)[0];
}

/** Returns the smallest number of handlers within 5 % of the fastest. Pure. */
export function chooseHandling(measured: readonly Handling[]): Handling | undefined {
  const best = Math.max(0, ...measured.map(({ handled }) => handled.perSecond));
  return measured
    .filter(({ handled }) => handled.perSecond >= best * (1 - TOLERANCE))
    .toSorted((a, b) => a.concurrency - b.concurrency)[0];
}

function proposeHandlers(handling: readonly Handling[]): readonly Proposal[] {
  const chosen = chooseHandling(handling);
  if (chosen === undefined) return [];
  return [
    {
      setting: "SAGABOX_CONCURRENCY",
      value: String(chosen.concurrency),
      why:
        `${Math.round(chosen.handled.perSecond)} messages/s handled one by one, with ${chosen.handled.p95Ms.toFixed(1)} ms each (p95), ` +
        "by handlers that wait for this server only; those that wait for something else want more",
    },
  ];
}

export function propose(
  measured: readonly Measurement[],
  handling: readonly Handling[],
  machine: Machine,
): readonly Proposal[] {
  const chosen = chooseMeasurement(measured);
  if (chosen === undefined) return proposeHandlers(handling);
  const { batchSize, concurrency, drain, write } = chosen;
  const best = Math.max(...measured.map((one) => one.drain.perSecond));
  const share = Math.round((drain.perSecond / best) * 100);
  const pool = Math.min(machine.cores * 2 + 1, machine.usableConnections);
  return [
    {
      setting: "SAGABOX_BATCH_SIZE",
      value: String(batchSize),
      why: `${Math.round(drain.perSecond)} messages/s, ${share} % of the fastest, with ${drain.p95Ms.toFixed(1)} ms for a batch (p95)`,
    },
    ...proposeHandlers(handling),
    {
      setting: "workers",
      value: String(Math.max(2, concurrency)),
      why:
        `${concurrency} at a time drain as fast as this server gives (within 5 %)` +
        (concurrency < 2 ? "; the second is there for when the first stops" : ""),
    },
    {
      setting: "pool size",
      value: String(pool),
      why:
        `cores × 2 + spindles (${machine.cores} × 2 + 1), a start for all workers together; a worker waits for a free one` +
        (machine.sameMachine
          ? ""
          : "; counted with the cores of this machine, give those of the server with --cores"),
    },
    {
      setting: "lanes",
      value: "256",
      why: "fixed; at most this many workers can share the work",
    },
    {
      setting: "expect",
      value: `${Math.round(Math.min(drain.perSecond, write.perSecond))} messages/s`,
      why: "what this server writes and drains at that setting; a broker may be slower",
    },
  ];
}

/** Returns the value that `share` (0 to 1) of the sorted values do not exceed. Pure. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(sorted.length * share) - 1))] ?? 0;
}
