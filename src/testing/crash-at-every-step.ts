import type { SagaDetail } from "../admin/index.ts";
import type { Bus } from "../app/index.ts";
import { readEnvironment, rejectUnknownKeys } from "../options/index.ts";
import type { Phase } from "../saga/index.ts";
import { type Database, pgDatabase, type PgPool, quoteSchema, toArrayLiteral } from "../storage/index.ts";
import { assertTestEnvironment } from "./assert-test-environment.ts";
import type { CrashReport, CrashRun, CrashTest } from "./crash-test.ts";
import { type CrashPoint, CuttablePool } from "./cuttable-pool.ts";
import { eventually } from "./eventually.ts";
import { type SagaEnd, sagaEnds } from "./saga-probes.ts";
import { crashStatements } from "./statements.ts";

const KEYS = ["database", "schema", "makeBus", "saga", "input", "drive", "check", "within"];

/**
 * Runs the saga once to count its transitions, then once for each of them with a process that dies right before it is
 * committed, and once with one that dies right after. Another process takes over. Each run has to end as the first did.
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
  /** How the saga has to end. */
  readonly end?: SagaEnd;
}

interface RunResult {
  readonly transitions: number;
  readonly status: SagaEnd;
  /** False when the saga ended before the moment came. */
  readonly crashed: boolean;
}

/** Makes runs of one crash test, one after the other. */
class CrashRunner<I, R, P extends Phase> {
  readonly #test: CrashTest<I, R, P>;
  readonly #database: Database;
  readonly #sql: ReturnType<typeof crashStatements>;
  readonly #dead: Promise<unknown>[] = [];
  #runs = 0;

  constructor(test: CrashTest<I, R, P>) {
    this.#test = test;
    this.#database = pgDatabase(test.database);
    this.#sql = crashStatements(quoteSchema(test.schema ?? readEnvironment(process.env).schema ?? "sagabox"));
  }

  async run(wish: RunPlan = {}): Promise<RunResult> {
    try {
      return await this.#runOnce(this.#test.input(this.#runs++), wish);
    } catch (error) {
      if (wish.crash === undefined) throw error;
      const { when, transition } = wish.crash;
      const text = error instanceof Error ? error.message : String(error);
      throw new Error(`After a crash right ${when} transition ${transition}: ${text}`, { cause: error });
    }
  }

  /** The dead take their time to notice that nobody hears them; they harm nobody meanwhile. */
  async close(): Promise<void> {
    await Promise.all(this.#dead);
  }

  async #runOnce(input: I, { crash, end }: RunPlan): Promise<RunResult> {
    const pool = new CuttablePool(this.#test.database, crash);
    const first = await this.#startBus(pool);
    let bus = first;
    try {
      const sagaId = await untilCut(pool, this.#start(first, input));
      if (sagaId !== undefined) await untilCut(pool, this.#driveToEnd({ bus: first, sagaId, input, crash }));
      if (pool.isCut) {
        this.#dead.push(first.stop());
        await this.#terminateSessions(pool);
        bus = await this.#startBus(new CuttablePool(this.#test.database));
      }
      const life = { bus, sagaId: sagaId ?? (await this.#start(bus, input)), input, crash };
      const saga = await this.#driveToEnd(life);
      const status = saga.status as SagaEnd;
      if (end !== undefined && status !== end) await sagaEnds(bus, life.sagaId, end, { within: 1 });
      await this.#test.check?.({ ...life, saga });
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

  async #start(bus: Bus, input: I): Promise<string> {
    return (await bus.transaction((tx) => bus.start(tx, this.#test.saga, input))).sagaId;
  }

  async #driveToEnd(life: CrashRun<I>): Promise<SagaDetail> {
    const { within = "30s", drive } = this.#test;
    const ending = sagaEnds(life.bus, life.sagaId, undefined, { within });
    const [saga] = await Promise.all([ending, drive?.(life)]);
    return saga;
  }

  // The server ends what the dead had begun, and only then their leases: what was on its way could take them again.
  async #terminateSessions({ pids }: CuttablePool): Promise<void> {
    await eventually(async () => {
      const { rows } = await this.#database.run(this.#sql.disconnect, [toArrayLiteral(pids)]);
      return rows.length === 0;
    });
    await this.#database.run(this.#sql.endLeases);
  }
}

/** The result, or undefined as soon as the pool is cut, whatever becomes of the work then. */
async function untilCut<T>(pool: CuttablePool, work: Promise<T>): Promise<T | undefined> {
  const outcome = work.catch((error: unknown) => {
    if (pool.isCut) return undefined;
    throw error;
  });
  return Promise.race([outcome, pool.hasBeenCut.then(() => undefined)]);
}
