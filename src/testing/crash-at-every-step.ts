import type { SagaDetail } from "../admin/index.ts";
import type { Bus } from "../app/index.ts";
import type { Duration } from "../errors/index.ts";
import { readEnvironment, rejectUnknownKeys } from "../options/index.ts";
import type { GivenInput } from "../message/index.ts";
import type { Phase, Saga } from "../saga/index.ts";
import { type Database, pgDatabase, type PgPool, quoteSchema, toArrayLiteral } from "../storage/index.ts";
import { assertTestEnvironment } from "./time-traveller.ts";
import { type CrashPoint, CuttablePool } from "./cuttable-pool.ts";
import { eventually } from "./eventually.ts";
import { type SagaEnd, sagaEnds } from "./saga-probes.ts";
import { crashStatements } from "./statements.ts";

const KEYS = ["database", "schema", "makeBus", "saga", "input", "drive", "check", "within"];

/**
 * Runs the saga once to count its transitions. Then it repeats the saga twice for each transition, with a worker that
 * crashes right before the commit and one that crashes right after it. A second worker takes over. Rejects if a run
 * does not end like the first one, if `check` throws, or in production (OPTIONS_INVALID).
 */
export async function crashAtEveryStep<I, R, P extends Phase>(
  options: CrashTest<I, R, P>,
): Promise<CrashReport> {
  assertTestEnvironment("crashAtEveryStep()");
  rejectUnknownKeys("crashAtEveryStep", options, KEYS);
  const runner = new CrashRunner(options);
  try {
    const { transitions, status } = await runner.run();
    let crashes = 0;
    for (let transition = 1; transition <= transitions; transition += 1) {
      for (const when of ["before", "after"] as const) {
        if ((await runner.run({ crash: { transition, when }, end: status })).crashed) crashes += 1;
      }
    }
    return { transitions, crashes, status };
  } finally {
    await runner.close();
  }
}

interface RunPlan {
  readonly crash?: CrashPoint;
  /** The expected end of the saga. */
  readonly end?: SagaEnd;
}

interface RunResult {
  readonly transitions: number;
  readonly status: SagaEnd;
  /** False if the saga ended before its crash point. */
  readonly crashed: boolean;
}

/** Executes the runs of one crash test one after another. */
class CrashRunner<I, R, P extends Phase> {
  readonly #test: CrashTest<I, R, P>;
  readonly #database: Database;
  readonly #sql: ReturnType<typeof crashStatements>;
  readonly #stoppingBuses: Promise<unknown>[] = [];
  #runs = 0;

  constructor(test: CrashTest<I, R, P>) {
    this.#test = test;
    this.#database = pgDatabase(test.database);
    this.#sql = crashStatements(quoteSchema(test.schema ?? readEnvironment(process.env).schema ?? "sagabox"));
  }

  async run(plan: RunPlan = {}): Promise<RunResult> {
    try {
      return await this.#runOnce(this.#test.input(this.#runs++), plan);
    } catch (error) {
      if (plan.crash === undefined) throw error;
      const { when, transition } = plan.crash;
      const text = error instanceof Error ? error.message : String(error);
      throw new Error(`After a crash right ${when} transition ${transition}: ${text}`, { cause: error });
    }
  }

  /** Waits until the buses that lost their connections have stopped. They cannot change anything meanwhile. */
  async close(): Promise<void> {
    await Promise.all(this.#stoppingBuses);
  }

  async #runOnce(input: GivenInput<I>, { crash, end }: RunPlan): Promise<RunResult> {
    const pool = new CuttablePool(this.#test.database, crash);
    const first = await this.#startBus(pool);
    let bus = first;
    try {
      const sagaId = await untilCut(pool, this.#start(first, input));
      if (sagaId !== undefined) await untilCut(pool, this.#driveToEnd({ bus: first, sagaId, input, crash }));
      if (pool.isCut) {
        this.#stoppingBuses.push(first.stop());
        await this.#terminateSessions(pool);
        bus = await this.#startBus(new CuttablePool(this.#test.database));
      }
      const run = { bus, sagaId: sagaId ?? (await this.#start(bus, input)), input, crash };
      const saga = await this.#driveToEnd(run);
      const status = saga.status as SagaEnd;
      if (end !== undefined && status !== end) await sagaEnds(bus, run.sagaId, end, { within: 1 });
      await this.#test.check?.({ ...run, saga });
      return { transitions: pool.transitions, status, crashed: pool.isCut };
    } finally {
      if (bus !== first || !pool.isCut) await bus.stop();
    }
  }

  async #startBus(database: PgPool): Promise<Bus> {
    const bus = await this.#test.makeBus(database);
    await bus.run();
    return bus;
  }

  async #start(bus: Bus, input: GivenInput<I>): Promise<string> {
    return (await bus.transaction((tx) => bus.start(tx, this.#test.saga, input))).sagaId;
  }

  async #driveToEnd(run: CrashRun<I>): Promise<SagaDetail> {
    const { within = "30s", drive } = this.#test;
    const ending = sagaEnds(run.bus, run.sagaId, undefined, { within });
    const [saga] = await Promise.all([ending, drive?.(run)]);
    return saga;
  }

  // Sessions are ended before leases, because a statement that is still running could renew a lease.
  async #terminateSessions({ pids }: CuttablePool): Promise<void> {
    await eventually(async () => {
      const { rows } = await this.#database.run(this.#sql.disconnect, [toArrayLiteral(pids)]);
      return rows.length === 0;
    });
    await this.#database.run(this.#sql.endLeases);
  }
}

/** Resolves with the result of the work, or with undefined as soon as the pool is cut. */
async function untilCut<T>(pool: CuttablePool, work: Promise<T>): Promise<T | undefined> {
  const outcome = work.catch((error: unknown) => {
    if (pool.isCut) return undefined;
    throw error;
  });
  return Promise.race([outcome, pool.hasBeenCut.then(() => undefined)]);
}

/** One run of the saga, as passed to `drive` and `check`. */
export interface CrashRun<I> {
  /** The bus that is running. After a crash this is the second one. */
  readonly bus: Bus;
  readonly sagaId: string;
  readonly input: GivenInput<I>;
  /** Where the run crashes; undefined in the first run, which does not crash. */
  readonly crash: CrashPoint | undefined;
}

/** The options of `crashAtEveryStep`. */
export interface CrashTest<I, R, P extends Phase> {
  /** A pg.Pool on a database that no other process uses: sessions and leases of all workers are ended. */
  readonly database: PgPool;
  /** The schema of the bus. Default SAGABOX_SCHEMA, or "sagabox". */
  readonly schema?: string;
  /** Creates a bus on the given database, with the saga and all handlers. The test runs and stops it. */
  readonly makeBus: (database: PgPool) => Bus | Promise<Bus>;
  readonly saga: Saga<I, R, P>;
  /** Returns the input of a run, numbered from 0. Each input needs its own key. */
  readonly input: (run: number) => GivenInput<I>;
  /** Provides what comes from outside the saga, such as events. Called for each bus, so again after a crash. */
  readonly drive?: (run: CrashRun<I>) => void | Promise<void>;
  /** Called after each run. Throws if the effects of the run are not as expected. */
  readonly check?: (run: CrashRun<I> & { readonly saga: SagaDetail }) => void | Promise<void>;
  /** How long each bus may take to end the saga. Default "30s". */
  readonly within?: Duration | number;
}

export interface CrashReport {
  /** Number of transitions of the run without a crash. */
  readonly transitions: number;
  /** Number of runs that crashed and ended as expected. */
  readonly crashes: number;
  /** The end of the saga, equal in all runs. */
  readonly status: SagaEnd;
}
