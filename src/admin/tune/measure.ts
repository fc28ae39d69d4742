import { claimParams, rowKeyParams, parseRead, readStatements, type ClaimedLane } from "../../lanes/index.ts";
import { laneFor, streamFor } from "../../message/index.ts";
import { OutboxWriter, settleStatements, type Outgoing } from "../../outbox/index.ts";
import { randomToken, systemClock } from "../../runtime/index.ts";
import {
  quoteSchema,
  settlingPlans,
  steadyPlans,
  toArrayLiteral,
  type Database,
  type Session,
} from "../../storage/index.ts";
import { silentObserver } from "../../telemetry/index.ts";
import { percentile, type Measurement, type Speed } from "./propose.ts";
import { scratchStatements } from "./statements.ts";

const LANES = 256;
/** A payload of middling size. */
const DATA = JSON.stringify({
  orderId: "0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11",
  note: "x".repeat(200),
  total: 12.5,
});

export interface MeasureOptions {
  readonly batchSize: number;
  readonly concurrency: number;
  readonly forMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** The two connections of a relay. */
export interface Connections {
  readonly reading: Session;
  readonly settling: Session;
}

export async function openConnections(database: Database, count: number): Promise<readonly Connections[]> {
  const opened: Connections[] = [];
  for (let n = 0; n < count; n++) {
    const reading = await database.session("tune", steadyPlans);
    const settling = await database.session("tune", { ...settlingPlans, synchronous_commit: "off" });
    opened.push({ reading, settling });
  }
  return opened;
}

/** Writes, then reads and settles, with the statements of the product, each for half of the time. */
export async function measure(
  database: Database,
  connections: readonly Connections[],
  schema: string,
  { batchSize, concurrency, forMs, signal }: MeasureOptions,
): Promise<Measurement> {
  await database.run(scratchStatements(quoteSchema(schema)).empty);
  const writer = new OutboxWriter(schema, silentObserver);
  const work = { concurrency, untilMs: systemClock.monotonicMs() + forMs / 2, signal };
  const write = await measureBatches(work, async () => {
    await writer.write(database, Array.from({ length: batchSize }, createOutgoing));
    return batchSize;
  });
  const drains = connections.slice(0, concurrency).map((pair, n) => {
    const lanes = Array.from({ length: LANES }, (_, lane) => lane).filter((lane) => lane % concurrency === n);
    return createDrain(schema, lanes, batchSize, pair);
  });
  const later = { ...work, untilMs: systemClock.monotonicMs() + forMs / 2 };
  const drain = await measureBatches(later, (n) => drains[n]?.() ?? Promise.resolve(0));
  return { batchSize, concurrency, write, drain };
}

interface Work {
  readonly concurrency: number;
  readonly untilMs: number;
  readonly signal: AbortSignal | undefined;
}

/** So many loops at once, until the time is over or nothing is left. */
export async function measureBatches(
  { concurrency, untilMs, signal }: Work,
  batch: (n: number) => Promise<number>,
): Promise<Speed> {
  const [took, startedMs] = [[] as number[], systemClock.monotonicMs()];
  let [done, endedMs] = [0, startedMs];
  const loop = async (n: number): Promise<void> => {
    while (systemClock.monotonicMs() < untilMs && signal?.aborted !== true) {
      const beganMs = systemClock.monotonicMs();
      const count = await batch(n);
      if (count === 0) return; // nothing is left
      endedMs = systemClock.monotonicMs();
      took.push(endedMs - beganMs);
      done += count;
    }
  };
  await Promise.all(Array.from({ length: concurrency }, (_, n) => loop(n)));
  const perSecond = (done * 1_000) / Math.max(1, endedMs - startedMs);
  return { perSecond, p50Ms: percentile(took, 0.5), p95Ms: percentile(took, 0.95) };
}

/** What a relay does with its lanes, without a transport in between. */
function createDrain(
  schema: string,
  lanes: readonly number[],
  batchSize: number,
  { reading, settling }: Connections,
): () => Promise<number> {
  const quoted = quoteSchema(schema);
  const [{ fetchWhole }, { sent }] = [readStatements(quoted, "outbox"), settleStatements(quoted)];
  const marks = new Map(lanes.map((lane) => [lane, 0]));
  const formatDay = (days: number): string =>
    new Date(systemClock.wallMs() + days * 86_400_000).toISOString().slice(0, 10);
  const claim = (lane: number): ClaimedLane => ({ lane, fence: 1, token: "tune" });
  return async () => {
    const { rows: raw } = await reading.run<never>(fetchWhole, [
      toArrayLiteral(lanes),
      toArrayLiteral(lanes.map((lane) => marks.get(lane) ?? 0)),
      "{}",
      "{}",
      "{}",
      Math.max(1, Math.ceil(batchSize / 2)),
      batchSize,
      formatDay(-1),
      formatDay(1),
    ]);
    const rows = parseRead(raw, { still: () => true, origin: { atMs: 0, server: undefined } }).rows.map(
      ({ row }) => row,
    );
    if (rows.length === 0) return 0;
    for (const { lane, seq } of rows) marks.set(lane, Math.max(marks.get(lane) ?? 0, seq));
    const claims = [...new Set(rows.map(({ lane }) => lane))].toSorted((a, b) => a - b).map(claim);
    await settling.run(sent, [...claimParams(claims), ...rowKeyParams(rows), "tune"]);
    return rows.length;
  };
}

function createOutgoing(): Outgoing {
  const id = randomToken();
  const message = {
    id,
    kind: "event",
    type: "tune.measured",
    schemaVersion: 1,
    topic: "tune",
    key: id,
    data: DATA,
    headers: {},
    correlationId: id,
    causationId: null,
    traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    sagaId: null,
    aggregateType: null,
    aggregateId: null,
    source: "sagabox tune",
    target: null,
    priority: 5,
  } as const;
  const plain = { maxAttempts: 10, holdsOnDeath: false, strict: false, ttlMs: null, schedule: null };
  return { message, lane: laneFor(id), stream: streamFor("tune", id), ...plain, ownId: false, flush: false };
}
