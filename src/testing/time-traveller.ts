import { findSagaVault, type Bus, type BusTransaction } from "../app/index.ts";
import { milliseconds, readEnvironment, rejectUnknownKeys, type Duration } from "../options/index.ts";
import type { SagaVault } from "../saga/index.ts";
import {
  quoteSchema,
  SQLSTATE,
  sqlState,
  type Param,
  type Queryable,
  type Statement,
} from "../storage/index.ts";
import { formatTime } from "./eventually.ts";
import { shiftSaga, type ShiftedSaga, type OpenSaga } from "./move-saga.ts";
import { assertTestEnvironment } from "./assert-test-environment.ts";
import { timeStatements } from "./statements.ts";

export interface TimeTravellerOptions {
  /** The schema of the bus, if it was given one. Default: SAGABOX_SCHEMA, else "sagabox". */
  readonly schema?: string;
}

export interface TimeMoved {
  /** Open sagas whose times were moved. */
  readonly sagas: number;
  /** Messages that were scheduled, waited for another try, or were about to expire. */
  readonly messages: number;
}

export interface TimeTraveller {
  /**
   * As if every process had stood still for so long: whatever waits in the tables is due so much earlier, all of it
   * in one transaction. What becomes due begins its own waits from then on; call it again for those.
   */
  advance(time: Duration | number): Promise<TimeMoved>;
}

const TEN_YEARS_MS = 3_650 * 86_400_000;
const MAX_TRIES = 5;
/** As many as fit a notification. */
const MAX_LANES_PER_BATCH = 500;

/** Moves the time of everything that waits in the tables of a bus. For tests alone; running workers notice. */
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
  /** For the history of each saga. */
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
    const sooner = await shiftSaga(vault, one, byMs, within);
    if (sooner !== undefined) moved.push(sooner);
  }
  if (moved.length > 0) await run(sql.moveSagas, byMs, JSON.stringify(moved), note);
  for (const one of [sql.moveMail, sql.moveIncidents, sql.moveMessages, sql.moveFlows]) await run(one, byMs);
  const { rows: scheduled } = await run(sql.moveScheduled, byMs);
  const { rows: sent } = await run<{ lane: number }>(sql.moveOutbox, byMs);
  const { rows: queued } = await run<{ lane: number }>(sql.moveQueue, byMs);
  const rows = [...sent, ...queued];
  // Heard with the commit: those that hold rows back look at them again, and everybody looks for what is due.
  const lanes = [...new Set(rows.map(({ lane }) => lane))];
  for (let first = 0; first < lanes.length; first += MAX_LANES_PER_BATCH) {
    await run(sql.notify, channel, `!${lanes.slice(first, first + MAX_LANES_PER_BATCH).join(",")}`);
  }
  await run(sql.notify, channel, "*");
  return { sagas: moved.length, messages: scheduled.length + rows.length };
}

// A worker may be moving rows in another order; the server ends one of the two, and we can always begin again.
async function retryOnDeadlock<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work();
    } catch (error) {
      if (sqlState(error) !== SQLSTATE.deadlockDetected || tries === MAX_TRIES) throw error;
    }
  }
}
