import { type Bus, findSagaVault } from "../app/index.ts";
import type { BusTransaction } from "../inbox/index.ts";
import { SagaboxError } from "../errors/index.ts";
import type { Json } from "../message/index.ts";
import { type Duration, milliseconds, readEnvironment, rejectUnknownKeys } from "../options/index.ts";
import {
  decryptText,
  encryptText,
  findCipher,
  keyUnavailable,
  type SagaState,
  type SagaVault,
  type StepRecord,
} from "../saga/index.ts";
import {
  type Param,
  type Queryable,
  quoteSchema,
  SQLSTATE,
  sqlState,
  type Statement,
} from "../storage/index.ts";
import { formatTime } from "./eventually.ts";
import { timeStatements } from "./statements.ts";

export interface TimeTravellerOptions {
  /** The schema of the bus. Default SAGABOX_SCHEMA, or "sagabox". */
  readonly schema?: string;
}

export interface TimeMoved {
  /** Number of open sagas whose times were moved. */
  readonly sagas: number;
  /** Number of messages that were scheduled, waited for a retry, or had an expiry time. */
  readonly messages: number;
}

export interface TimeTraveller {
  /**
   * Makes all waiting work in the tables due earlier by `time` (a duration or milliseconds), in one transaction. Work
   * that becomes due may start new waits; call it again to pass those. Throws for an invalid time.
   */
  advance(time: Duration | number): Promise<TimeMoved>;
}

const TEN_YEARS_MS = 3_650 * 86_400_000;
const MAX_TRIES = 5;
/** Number of lanes that fit into one notification. */
const MAX_LANES_PER_BATCH = 500;

/** Creates a TimeTraveller, which moves the waiting times of a bus in tests. Running workers are notified. */
export function timeTraveller(bus: Bus, options: TimeTravellerOptions = {}): TimeTraveller {
  assertTestEnvironment("timeTraveller()");
  rejectUnknownKeys("timeTraveller", options, ["schema"]);
  const schema = options.schema ?? readEnvironment(process.env).schema ?? "sagabox";
  const sql = timeStatements(quoteSchema(schema));
  const channel = `sagabox_${schema}`.slice(0, 63);
  const vault = findSagaVault(bus);
  return {
    advance: async (time) => {
      const byMs = milliseconds("advance", time, { min: 1, max: TEN_YEARS_MS });
      const note = `time was moved by a test: ${formatTime(time)}`;
      return retryOnDeadlock(() =>
        bus.transaction((tx) => shiftDatabase(tx, sql, { byMs, note, channel, vault })),
      );
    },
  };
}

type TimeStatements = ReturnType<typeof timeStatements>;

interface TimeShift {
  readonly byMs: number;
  /** Written to the history of each saga. */
  readonly note: string;
  readonly channel: string;
  readonly vault: SagaVault | undefined;
}

async function shiftDatabase(
  tx: BusTransaction,
  sql: TimeStatements,
  { byMs, note, channel, vault }: TimeShift,
): Promise<TimeMoved> {
  const run = <R>({ text }: Statement, ...params: (string | number)[]) => tx.query<R>(text, params);
  const within: Queryable = {
    run: async <R>({ text }: Statement, params?: readonly Param[]) => ({
      ...(await tx.query<R>(text, params)),
      command: "",
    }),
  };
  const { rows: open } = await run<OpenSaga>(sql.lockSagas);
  const moved: ShiftedSaga[] = [];
  for (const one of open) {
    const shifted = await shiftSaga(vault, one, byMs, within);
    if (shifted !== undefined) moved.push(shifted);
  }
  if (moved.length > 0) await run(sql.moveSagas, byMs, JSON.stringify(moved), note);
  for (const one of [sql.moveInput, sql.moveIncidents, sql.moveMessages, sql.moveFlows]) await run(one, byMs);
  const { rows: scheduled } = await run(sql.moveScheduled, byMs);
  const { rows: sent } = await run<{ lane: number }>(sql.moveOutbox, byMs);
  const { rows: queued } = await run<{ lane: number }>(sql.moveQueue, byMs);
  const rows = [...sent, ...queued];
  // Notifications are sent with the commit. Workers then read held-back rows of these lanes again and poll for due work.
  const lanes = [...new Set(rows.map(({ lane }) => lane))];
  for (let first = 0; first < lanes.length; first += MAX_LANES_PER_BATCH) {
    await run(sql.notify, channel, `!${lanes.slice(first, first + MAX_LANES_PER_BATCH).join(",")}`);
  }
  await run(sql.notify, channel, "*");
  return { sagas: moved.length, messages: scheduled.length + rows.length };
}

// A worker may lock rows in another order. PostgreSQL then cancels one transaction, and this one can be repeated.
async function retryOnDeadlock<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work();
    } catch (error) {
      if (sqlState(error) !== SQLSTATE.deadlockDetected || tries === MAX_TRIES) throw error;
    }
  }
}

/** An open saga whose row is locked. */
interface OpenSaga {
  readonly id: string;
  readonly version: number;
  readonly state: string;
}

interface ShiftedSaga {
  readonly id: string;
  readonly state: Json;
}

/**
 * Returns the moved state, encrypted for the saga's next version if it holds personal data. Returns undefined if the
 * data subject was erased: the state cannot be read any more, and the saga waits for nothing.
 */
async function shiftSaga(
  vault: SagaVault | undefined,
  { id, version, state }: OpenSaga,
  byMs: number,
  tx: Queryable,
): Promise<ShiftedSaga | undefined> {
  const seal = await findCipher(vault, state, tx);
  if (seal === "sealed") throw keyUnavailable(id);
  if (seal === "erased") return undefined;
  const known = JSON.parse(decryptText(seal, state, id, ["state", version])) as SagaState;
  const text = encryptText(seal, JSON.stringify(shiftState(known, byMs)), id, ["state", version + 1]);
  return { id, state: JSON.parse(text ?? "null") as Json };
}

type Times = Pick<StepRecord, "nextAtMs" | "dueAtMs" | "startedAtMs" | "endedAtMs">;

/** Moves all times in a saga's state `byMs` into the past. */
function shiftState(state: SagaState, byMs: number): SagaState {
  const records = Object.entries(state.records).map(([stepPath, record]) => [
    stepPath,
    shiftRecord(record, byMs),
  ]);
  return {
    ...state,
    records: Object.fromEntries(records) as SagaState["records"],
    ...(state.deadlineAtMs === undefined ? {} : { deadlineAtMs: state.deadlineAtMs - byMs }),
  };
}

function shiftRecord(record: StepRecord, byMs: number): StepRecord {
  const { undo } = record;
  const moved = { ...record, ...shiftTimes(record, byMs) };
  return undo === undefined ? moved : { ...moved, undo: { ...undo, ...shiftTimes(undo, byMs) } };
}

function shiftTimes({ nextAtMs, dueAtMs, startedAtMs, endedAtMs }: Times, byMs: number): Times {
  return {
    startedAtMs: startedAtMs - byMs,
    ...(nextAtMs === undefined ? {} : { nextAtMs: nextAtMs - byMs }),
    ...(dueAtMs === undefined ? {} : { dueAtMs: dueAtMs - byMs }),
    ...(endedAtMs === undefined ? {} : { endedAtMs: endedAtMs - byMs }),
  };
}

/** Throws OPTIONS_INVALID in production, because `what` changes rows directly in the tables. */
export function assertTestEnvironment(what: string): void {
  if (process.env["NODE_ENV"] !== "production") return;
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `${what} changes sagabox's tables directly. It is only for tests, and NODE_ENV is "production".`,
  );
}
