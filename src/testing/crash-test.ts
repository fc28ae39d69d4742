import type { SagaDetail } from "../admin/index.ts";
import type { Bus } from "../app/index.ts";
import type { Duration } from "../errors/index.ts";
import type { Phase, Saga } from "../saga/index.ts";
import type { PgPool } from "../storage/index.ts";
import type { CrashPoint } from "./cuttable-pool.ts";
import type { SagaEnd } from "./saga-probes.ts";

/** One life of the saga. */
export interface CrashRun<I> {
  /** The bus that is alive. */
  readonly bus: Bus;
  readonly sagaId: string;
  readonly input: I;
  /** Undefined in the first run, in which nothing goes wrong. */
  readonly crash: CrashPoint | undefined;
}

export interface CrashTest<I, R, P extends Phase> {
  /** A pg.Pool on a database of the test's own: nobody else may be working there. */
  readonly database: PgPool;
  /** The schema of the bus, if it is given one. Default: SAGABOX_SCHEMA, else "sagabox". */
  readonly schema?: string;
  /** A bus on the database that it is handed, with the saga and all handlers. It is run and stopped for you. */
  readonly makeBus: (database: PgPool) => Bus | Promise<Bus>;
  readonly saga: Saga<I, R, P>;
  /** An input with a key of its own for each run, numbered from 0. */
  readonly input: (run: number) => I;
  /** What has to come from outside: events, a person, time. Called for each bus, so a second time after a crash. */
  readonly drive?: (run: CrashRun<I>) => void | Promise<void>;
  /** Whether the world is as it has to be, however the run went. Throws if it is not. */
  readonly check?: (run: CrashRun<I> & { readonly saga: SagaDetail }) => void | Promise<void>;
  /** How long a process may take to end the saga. Default "30s". */
  readonly within?: Duration | number;
}

export interface CrashReport {
  /** How many transitions the saga makes when nothing goes wrong. */
  readonly transitions: number;
  /** How many crashes it has survived. */
  readonly crashes: number;
  /** How it ended, every time. */
  readonly status: SagaEnd;
}
