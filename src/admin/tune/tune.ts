import { SagaboxError } from "../../errors/index.ts";
import { inboxEngine, receiveOnce } from "../../inbox/index.ts";
import { type ClaimedLane, claimParams, parseRead, readStatements, rowKeyParams } from "../../lanes/index.ts";
import { laneFor, streamFor } from "../../message/index.ts";
import { wholeNumber } from "../../options/index.ts";
import { OutboxWriter, type Outgoing, settleStatements } from "../../outbox/index.ts";
import { randomToken, systemClock } from "../../runtime/index.ts";
import {
  type Database,
  migrateUp,
  quoteSchema,
  type Session,
  settlingPlans,
  steadyPlans,
  toArrayLiteral,
} from "../../storage/index.ts";
import { silentObserver } from "../../telemetry/index.ts";
import {
  type Handling,
  type Machine,
  type Measurement,
  percentile,
  type Proposal,
  propose,
  type Speed,
} from "./propose.ts";
import { scratchStatements, serverStatements } from "./statements.ts";

const LANES = 256;
/** A payload of middling size. */
const DATA = JSON.stringify({
  orderId: "0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11",
  note: "x".repeat(200),
  total: 12.5,
});

interface MeasureOptions {
  readonly batchSize: number;
  readonly concurrency: number;
  readonly forMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** The two connections of a relay. */
interface Connections {
  readonly reading: Session;
  readonly settling: Session;
}

async function openConnections(database: Database, count: number): Promise<readonly Connections[]> {
  const opened: Connections[] = [];
  for (let n = 0; n < count; n++) {
    const reading = await database.session("tune", steadyPlans);
    const settling = await database.session("tune", { ...settlingPlans, synchronous_commit: "off" });
    opened.push({ reading, settling });
  }
  return opened;
}

/** Writes, then reads and settles, with the statements of the product, each for half of the time. */
async function measure(
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

/** Runs `concurrency` loops until the time is over or no work is left. */
async function measureBatches(
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
    const rows = parseRead(raw, { isOwned: () => true, origin: { atMs: 0, server: undefined } }).rows.map(
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

/** Far longer than a handler without work can take. */
const DEADLINE_MS = 30_000;

/**
 * Handlers side by side, each in its own transaction with its inbox row, as a consumer runs them. They do nothing else, so
 * this is what the server gives to handlers that only wait for it.
 */
async function measureHandling(
  database: Database,
  schema: string,
  { concurrency, forMs, signal }: Omit<MeasureOptions, "batchSize">,
): Promise<Handling> {
  const engine = inboxEngine({ database, schema });
  const work = { concurrency, untilMs: systemClock.monotonicMs() + forMs, signal };
  const handled = await measureBatches(work, async () => {
    const id = randomToken();
    const message = { id, consumer: "tune", topic: "tune", type: "tune.measured", payload: null };
    await receiveOnce(engine, { ...message, expiresAt: null, deadlineMs: DEADLINE_MS }, () => undefined);
    return 1;
  });
  return { concurrency, handled };
}

// Both reach beyond the defaults (500 and 10), which could not be found too small otherwise.
export const tuneBatchSizes = [10, 50, 100, 200, 500, 1_000, 2_000] as const;
export const tuneHandlers = [1, 5, 10, 20, 40] as const;
export const tuneConcurrencies = [1, 2, 4, 8] as const;

/** Three connections for each relay that works at a time: one writes, one reads, one settles; one for each handler. */
export const tuneConnections = Math.max(Math.max(...tuneConcurrencies) * 3, ...tuneHandlers);

export interface TuneOptions {
  /** How long all measurements take together. Default 60 seconds. */
  readonly seconds?: number;
  readonly batchSizes?: readonly number[];
  /** Relays at a time. */
  readonly concurrencies?: readonly number[];
  /** Handlers at a time. More than half of the server's connections are never taken. */
  readonly handlers?: readonly number[];
  /** Of the database server. */
  readonly cores: number;
  /** True if `cores` is known to be that of the server, not guessed. */
  readonly coresKnown?: boolean;
  readonly signal?: AbortSignal;
  readonly onMeasured?: (done: number, total: number, last: Measurement | Handling) => void;
}

export interface TuneReport {
  /** The scratch schema, which is gone again. */
  readonly schema: string;
  /** False when it was stopped before its end. */
  readonly finished: boolean;
  readonly measurements: readonly Measurement[];
  readonly handling: readonly Handling[];
  readonly proposals: readonly Proposal[];
}

/** Measures on the server, in a scratch schema that is always dropped at the end. Throws STORAGE_PERMISSION_DENIED. */
export async function tune(database: Database, options: TuneOptions): Promise<TuneReport> {
  const { batchSizes = tuneBatchSizes, concurrencies = tuneConcurrencies, signal } = options;
  const seconds = wholeNumber("tune: seconds", options.seconds ?? 60, { min: 1, max: 3_600 });
  const server = await readServer(database);
  const schema = `sagabox_tune_${randomToken()
    .replaceAll(/[^a-z0-9]/gi, "")
    .toLowerCase()
    .slice(0, 12)}`;
  const settings = concurrencies.flatMap((concurrency) =>
    batchSizes.map((batchSize) => ({ batchSize, concurrency })),
  );
  const most = Math.min(database.size, Math.floor(server.usable / 2));
  const handlers = (options.handlers ?? tuneHandlers).filter((count) => count <= most);
  const total = settings.length + handlers.length;
  const isStopped = (): boolean => signal?.aborted === true;
  const forMs = (seconds * 1_000) / total;
  const measurements: Measurement[] = [];
  const handling: Handling[] = [];
  const sql = scratchStatements(quoteSchema(schema));
  const connections: Connections[] = [];
  try {
    await migrateUp(database, schema);
    await database.run(sql.own);
    connections.push(...(await openConnections(database, Math.max(...concurrencies))));
    for (const setting of settings) {
      if (isStopped()) break;
      const measured = await measure(database, connections, schema, { ...setting, forMs, signal });
      if (isStopped()) break; // cut short, so it says nothing
      measurements.push(measured);
      options.onMeasured?.(measurements.length, total, measured);
    }
    releaseConnections(connections.splice(0));
    for (const concurrency of handlers) {
      if (isStopped()) break;
      const measured = await measureHandling(database, schema, { concurrency, forMs, signal });
      if (isStopped()) break;
      handling.push(measured);
      options.onMeasured?.(measurements.length + handling.length, total, measured);
    }
  } finally {
    releaseConnections(connections);
    await database.run(sql.drop);
  }
  const finished = measurements.length + handling.length === total;
  const machine: Machine = {
    cores: options.cores,
    sameMachine: options.coresKnown === true || server.local,
    usableConnections: server.usable,
  };
  return { schema, finished, measurements, handling, proposals: propose(measurements, handling, machine) };
}

function releaseConnections(connections: readonly Connections[]): void {
  for (const { reading, settling } of connections) {
    reading.release(true);
    settling.release(true);
  }
}

interface Server {
  readonly allowed: boolean;
  readonly user_name: string;
  readonly local: boolean;
  readonly usable: number;
}

async function readServer(database: Database): Promise<Server> {
  const { rows } = await database.run<Server>(serverStatements.mayCreate);
  const [server] = rows;
  if (server?.allowed === true) return server;
  throw new SagaboxError(
    "STORAGE_PERMISSION_DENIED",
    `Database role "${server?.user_name ?? "?"}" may not create schemas in this database, and measuring needs one of its own. ` +
      "Connect as a role that may, or measure on a copy of the server.",
  );
}
