import { readStoredLags } from "../../inbox/index.ts";
import { quoteSchema, type Database } from "../../storage/index.ts";
import { measureQueueLags } from "../../transports/postgres/index.ts";
import { chooseLags, type ConsumerLag, summarizeLags } from "./consumer-lag.ts";
import { judgeOverview, type Verdict } from "./judge-overview.ts";
import { overviewStatements } from "./statements.ts";
import { findUnreadLanes, type UnreadLane } from "./unread-lanes.ts";

/** A count that stops at a limit to bound its cost. If `exact` is false, the true count may be higher. */
export interface BoundedCount {
  readonly count: number;
  readonly exact: boolean;
}

export interface ConsumerOverview extends ConsumerLag {
  readonly name: string;
  readonly topics: number;
  /** Messages in the queue of PostgreSQL that failed and wait for a retry. */
  readonly failed: number;
  /** Number of lanes owned by running workers; null if its transport has no lanes here. */
  readonly ownedLanes: number | null;
}

export interface WorkerOverview {
  readonly worker: string;
  readonly live: boolean;
  readonly since: string;
  /** Seconds since its last lease ended; null while it is alive. */
  readonly goneSeconds: number | null;
  /** Number of outbox lanes that it owns. */
  readonly relayLanes: number;
}

export interface Facts {
  readonly at: string;
  readonly schema: { readonly name: string; readonly version: number; readonly migration: string };
  /** True if a worker has ever run on this database. */
  readonly hasRun: boolean;
  readonly outbox: {
    readonly waiting: BoundedCount;
    /** Messages that wait for a retry. */
    readonly failed: number;
    /** Messages with three or more attempts. */
    readonly stubborn: number;
    readonly oldestDueSeconds: number | null;
    readonly scheduled: BoundedCount;
    /** Seconds that the first scheduled message is late; null if it is not. */
    readonly scheduleLateSeconds: number | null;
    /** Number of keys blocked by a dead letter. */
    readonly heldKeys: number;
  };
  readonly deadLetters: BoundedCount;
  readonly lanes: { readonly total: number; readonly unowned: number };
  /** Lanes whose owner is alive but does not read them. */
  readonly unreadLanes: readonly UnreadLane[];
  readonly workers: readonly WorkerOverview[];
  readonly consumers: readonly ConsumerOverview[];
  readonly sagas: { readonly running: number; readonly compensating: number; readonly failed: number };
}

export interface Overview extends Facts, Verdict {}

const MAX_COUNTED = 100_000;
const RELAY_SCOPE = 0;

/** Reads the state of the whole system and its problems. Read-only, with bounded cost. */
export async function readOverview(database: Database, schema: string): Promise<Overview> {
  const facts = await readFacts(database, schema);
  return { ...facts, ...judgeOverview(facts) };
}

async function readFacts(database: Database, schema: string): Promise<Facts> {
  const sql = overviewStatements(quoteSchema(schema));
  const [version] = (await database.run<VersionRow>(sql.version)).rows;
  const [outbox] = (await database.run<OutboxRow>(sql.outbox, [MAX_COUNTED])).rows;
  const [letters] = (await database.run<DeadLettersRow>(sql.deadLetters, [MAX_COUNTED])).rows;
  const [traces] = (await database.run<{ has_run: boolean }>(sql.traces)).rows;
  const lanes = (await database.run<LaneRow>(sql.lanes)).rows;
  const workers = (await database.run<WorkerRow>(sql.workers)).rows;
  const groups = (await database.run<ConsumerRow>(sql.consumers, [MAX_COUNTED])).rows;
  const sagas = (await database.run<{ status: string; count: number }>(sql.sagas, [MAX_COUNTED])).rows;
  const relay = lanes.filter(({ scope }) => scope === RELAY_SCOPE);
  const inStatus = (...names: string[]): number =>
    sum(sagas.filter(({ status }) => names.includes(status)).map(({ count }) => count));
  return {
    at: version?.now ?? "",
    schema: { name: schema, version: version?.version ?? 0, migration: version?.name ?? "" },
    hasRun: traces?.has_run ?? false,
    outbox: {
      waiting: { count: outbox?.waiting ?? 0, exact: outbox?.exact ?? true },
      failed: outbox?.failed ?? 0,
      stubborn: outbox?.stubborn ?? 0,
      oldestDueSeconds: roundSeconds(outbox?.oldest_due_seconds),
      scheduled: { count: outbox?.scheduled ?? 0, exact: (outbox?.scheduled ?? 0) < MAX_COUNTED },
      scheduleLateSeconds: positiveOrNull(roundSeconds(outbox?.schedule_late_seconds)),
      heldKeys: letters?.held_keys ?? 0,
    },
    deadLetters: { count: letters?.open ?? 0, exact: letters?.exact ?? true },
    lanes: {
      total: sum(relay.map((row) => row.lanes)),
      unowned: sum(relay.filter(({ worker }) => worker === null).map((row) => row.lanes)),
    },
    unreadLanes: await findUnreadLanes(database, schema),
    workers: workers.map((row) => ({
      worker: row.worker,
      live: row.live,
      since: row.since,
      goneSeconds: row.live ? null : roundSeconds(row.gone_seconds),
      relayLanes: sum(relay.filter(({ worker }) => worker === row.worker).map((lane) => lane.lanes)),
    })),
    consumers: await readConsumers(database, schema, groups, lanes),
    sagas: {
      running: inStatus("started", "running", "completing"),
      compensating: inStatus("compensating"),
      failed: inStatus("failed"),
    },
  };
}

async function readConsumers(
  database: Database,
  schema: string,
  groups: readonly ConsumerRow[],
  lanes: readonly LaneRow[],
): Promise<readonly ConsumerOverview[]> {
  const queued = await measureQueueLags(database, schema);
  const stored = await readStoredLags(database, schema);
  const known = groups.map((row): ConsumerOverview => ({
    name: row.name,
    topics: row.topics,
    failed: row.failed,
    ownedLanes: sum(
      lanes.filter(({ scope, worker }) => scope === row.id && worker !== null).map((lane) => lane.lanes),
    ),
    ...summarizeLags(
      chooseLags(
        queued.filter(({ group }) => group === row.name),
        stored.find(({ consumer }) => consumer === row.name),
      ),
    ),
  }));
  // A transport that keeps the order of retries itself has no tables here.
  const others = stored
    .filter(({ consumer }) => !groups.some(({ name }) => name === consumer))
    .map((measured): ConsumerOverview => {
      const lag = summarizeLags(chooseLags([], measured));
      const base = { name: measured.consumer, failed: 0, ownedLanes: null };
      return { ...base, topics: measured.lags.length, ...lag };
    });
  // A broker's topics are not subscribed here, but they are in the measurement.
  return [...known, ...others].map((one) => ({ ...one, topics: Math.max(one.topics, countTopics(one)) }));
}

function countTopics({ lags }: ConsumerOverview): number {
  return lags.filter(({ topic }) => topic !== null).length;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

function roundSeconds(seconds: number | null | undefined): number | null {
  return seconds === null || seconds === undefined ? null : Math.round(seconds * 10) / 10;
}

function positiveOrNull(seconds: number | null): number | null {
  return seconds !== null && seconds > 0 ? seconds : null;
}

type VersionRow = { readonly version: number; readonly name: string; readonly now: string };
type LaneRow = { readonly scope: number; readonly worker: string | null; readonly lanes: number };
type DeadLettersRow = { readonly open: number; readonly exact: boolean; readonly held_keys: number };

interface OutboxRow {
  readonly waiting: number;
  readonly failed: number;
  readonly stubborn: number;
  readonly exact: boolean;
  readonly oldest_due_seconds: number | null;
  readonly scheduled: number;
  readonly schedule_late_seconds: number | null;
}

interface WorkerRow {
  readonly worker: string;
  readonly live: boolean;
  readonly since: string;
  readonly gone_seconds: number;
}

interface ConsumerRow {
  readonly id: number;
  readonly name: string;
  readonly failed: number;
  readonly topics: number;
}
