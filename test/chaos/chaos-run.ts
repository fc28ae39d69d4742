import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { createBus } from "sagabox";
import { onTestFinished } from "vitest";
import { verifyConservation } from "../../src/admin/index.ts";
import { pgDatabase } from "../../src/storage/index.ts";
import { isBrokerKind, type BrokerKind } from "../support/brokers/broker-server.ts";
import { ChaosBroker } from "./chaos-broker.ts";
import { check, type Violation } from "./checker.ts";
import { HANDLERS, signedUrl } from "./child-contract.ts";
import {
  readCommitted,
  readEffects,
  readLaneMoves,
  readSettles,
  readWire,
  type Evidence,
  type Fault,
  installEvidence,
} from "./evidence.ts";
import { type ChaosChild, type LogLine, ChaosFleet } from "./fleet.ts";
import { Starvation, takeOvers, type TakeOver } from "./take-over.ts";
import { until } from "./until.ts";

/** TEST_PROOF=full runs the whole figures; anything else a tenth. */
export const full = process.env["TEST_PROOF"] === "full";

/** TEST_REQUIRE=all runs every way of publishing, with small figures. */
export const everyMode = full || process.env["TEST_REQUIRE"] === "all";

/** The figure for this tier. */
export function figure(whole: number, quick = Math.ceil(whole / 10)): number {
  return full ? whole : quick;
}

/** Both ways of a message, in a quick run too where all is asked for; else one of them, so that `npm test` stays short. */
export function chooseModes<Way extends string>(quick: Way, other: Way): readonly Way[] {
  return everyMode ? [quick, other] : [quick];
}

/** Prints one line per proof. */
export function report(proof: string, figures: Readonly<Record<string, string | number>>): void {
  const pairs = Object.entries(figures).map(([name, value]) => `${name} ${value}`);
  process.stdout.write(`proof ${proof}: ${pairs.join(", ")}\n`);
}

/** Everything a person needs to find out what happened, kept when a promise was broken. */
export function keepEvidence(...evidence: readonly unknown[]): void {
  const path = join(tmpdir(), `sagabox-proof-${process.pid}-${Date.now()}.json`);
  writeFileSync(path, JSON.stringify(evidence));
  process.stdout.write(`proof: evidence kept in ${path}\n`);
}

/** What may be left in the database after every worker said good-bye. */
export const NOTHING = {
  outbox: 0,
  queue: 0,
  lanes: 0,
  members: 0,
  dead: 0,
  transactions: 0,
  advisory: 0,
} as const;

async function look(pool: pg.Pool): Promise<Record<string, number>> {
  const { rows } = await pool.query<Record<string, number>>(
    `select (select count(*) from sagabox.outbox)::integer as outbox,
            (select count(*) from sagabox.queue)::integer as queue,
            (select count(*) from sagabox.relay_lane where owner is not null)::integer as lanes,
            (select count(*) from sagabox.member where lease_until > clock_timestamp())::integer as members,
            (select count(*) from sagabox.dead_letter)::integer as dead,
            (select count(*) from pg_stat_activity where datname = current_database() and xact_start is not null
                and pid <> pg_backend_pid() and backend_type = 'client backend')::integer as transactions,
            (select count(*) from pg_locks where locktype = 'advisory' and database =
               (select oid from pg_database where datname = current_database()))::integer as advisory`,
  );
  return rows[0] ?? {};
}

// The server notices that a killed process is gone a moment after its socket closed, and ends its transaction then.
const PATIENCE_MS = 10_000;

/** What is left when nothing should be. Looked at again for a while: only what stays is left. */
export async function whatIsLeft(pool: pg.Pool): Promise<Readonly<Record<string, number>>> {
  const endMs = performance.now() + PATIENCE_MS;
  for (;;) {
    const left = await look(pool);
    if (Object.values(left).every((count) => count === 0) || performance.now() > endMs) return left;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** "hop": outbox and queue in one database and one transaction. "broker": publish, then settle. */
export type Mode = "hop" | "broker" | BrokerKind;

export interface ChaosRunOptions {
  readonly mode: Mode;
  readonly url: string;
  readonly messages: number;
  readonly keys: number;
  readonly leaseMs: number;
  readonly optimisticTimeoutMs?: number;
  readonly brokerLatencyMs?: number;
  /** How often the broker hands every message to its consumers. Default 1. */
  readonly brokerCopies?: number;
  /** A bug planted on purpose, as SQL. */
  readonly sabotage?: string;
  /** The address of a real broker, for the modes named after one. */
  readonly brokerUrl?: string;
  readonly failures?: number;
}

/** One proof: a database with evidence, a fleet, a load, and the judgement afterwards. */
export class ChaosRun {
  readonly pool: pg.Pool;
  readonly fleet: ChaosFleet;
  readonly faults: Fault[] = [];
  readonly leaseMs: number;
  readonly #options: ChaosRunOptions;
  readonly #broker: ChaosBroker | undefined;
  readonly #starvation: Starvation;

  private constructor(options: ChaosRunOptions, broker: ChaosBroker | undefined) {
    this.#options = options;
    this.#broker = broker;
    this.leaseMs = options.leaseMs;
    this.pool = new pg.Pool({
      connectionString: signedUrl(options.url, "harness"),
      application_name: "harness",
      max: 5,
    });
    this.pool.on("error", () => undefined);
    this.fleet = new ChaosFleet({
      url: options.url,
      leaseMs: options.leaseMs,
      brokerPort: broker?.port,
      optimisticTimeoutMs: options.optimisticTimeoutMs ?? 2_000,
      failures: options.failures ?? 0,
      ...(isBrokerKind(options.mode) && { broker: { kind: options.mode, url: options.brokerUrl ?? "" } }),
    });
    this.#starvation = new Starvation(() => this.fleet.workers);
  }

  static async begin(options: ChaosRunOptions): Promise<ChaosRun> {
    const broker =
      options.mode === "broker"
        ? new ChaosBroker({
            latencyMs: options.brokerLatencyMs ?? 0,
            sessionMs: options.leaseMs,
            copies: options.brokerCopies ?? 1,
          })
        : undefined;
    await broker?.start();
    const run = new ChaosRun(options, broker);
    onTestFinished(() => run.#end());
    const bus = createBus({ service: "chaos", database: run.pool, log: false });
    await bus.migrate();
    await bus.stop();
    await installEvidence(run.pool, options.keys);
    if (options.sabotage !== undefined) await run.pool.query(options.sabotage);
    run.#starvation.start();
    return run;
  }

  startLoad(processes = 2): void {
    const { messages, keys } = this.#options;
    for (let i = 0; i < processes; i++) {
      this.fleet.startLoad({ target: messages, keys, backlog: 2_000, writers: 6 });
    }
  }

  /** A steady load that lasts until the returned function ends it, however long the faults take. */
  startSteadyLoad(processes = 2): () => Promise<void> {
    const { keys } = this.#options;
    const steady = { target: Number.MAX_SAFE_INTEGER, keys, backlog: 2_000, writers: 4, restMs: 100 };
    const loads = Array.from({ length: processes }, () => this.fleet.startLoad(steady));
    return async () => {
      await Promise.all(loads.map((load) => load.ready));
      await Promise.all(loads.map((load) => this.fleet.retire(load)));
    };
  }

  async replaceLoad(load: ChaosChild): Promise<void> {
    this.fault(load.id, Date.now());
    await this.fleet.kill(load);
    this.startLoad(1);
  }

  /** How many messages are committed. Undefined while the database does not answer. */
  async countCommitted(): Promise<number | undefined> {
    return this.#number("select sum(kseq)::integer as value from aggregate");
  }

  async countEffects(): Promise<number | undefined> {
    return this.#number("select count(*)::integer as value from e_effect");
  }

  async progress(messages: number): Promise<void> {
    const isReached = async (): Promise<boolean> => ((await this.countCommitted()) ?? 0) >= messages;
    await until(`${messages} messages are committed`, isReached, { timeoutMs: 300_000 });
  }

  /** Waits until more effects than this have happened, so that a fault is followed by work. */
  async effectsBeyond(effects: number): Promise<void> {
    const isReached = async (): Promise<boolean> => ((await this.countEffects()) ?? 0) > effects;
    await until(`more than ${effects} effects have happened`, isReached, { timeoutMs: 180_000 });
  }

  /** A worker at random, once enough of them run for the others to take over. */
  async victim(): Promise<ChaosChild> {
    const ready = (): ChaosChild[] => this.fleet.workers.filter((child) => child.isReady);
    await until("enough workers are ready", () => ready().length >= 3);
    return pickOne(ready());
  }

  /** Whether the process holds no lane: it never did, gave them back, or others took them. */
  async isWithoutLanes(child: ChaosChild): Promise<boolean> {
    const owned = "select 1 from sagabox.relay_lane where owner like $1 limit 1";
    return (await this.pool.query(owned, [`${child.id}/%`])).rows.length === 0;
  }

  /** Terminates one session of the fleet. Returns how many sessions that were. */
  async cutSession(): Promise<number> {
    const { rows } = await this.pool.query<{ cut: boolean }>(
      `select pg_terminate_backend(pid) as cut
         from (select pid from pg_stat_activity
                where datname = current_database() and backend_type = 'client backend'
                  and application_name is distinct from 'harness'
                order by random() limit 1) as chosen`,
    );
    return rows.filter(({ cut }) => cut).length;
  }

  /** Ends the sessions of the fleet that began before this time. Returns whether none of them is left. */
  async cutSessionsBefore(time: string): Promise<boolean> {
    const { rowCount } = await this.pool.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and backend_type = 'client backend'
          and application_name is distinct from 'harness' and backend_start <= $1::timestamptz`,
      [time],
    );
    return rowCount === 0;
  }

  /** Notes that a process was killed or stopped. */
  fault(worker: string, fromMs: number, toMs = fromMs): void {
    this.faults.push({ worker, fromMs, toMs });
  }

  /** Waits until every effect happened and nothing is in flight. Gives up after a while: the checker reports what is missing. */
  async quiescence(timeoutMs = 90_000): Promise<boolean> {
    await this.fleet.waitForLoads();
    const idle = async (): Promise<boolean> => {
      const expected = ((await this.countCommitted()) ?? 0) * HANDLERS.length;
      if (((await this.countEffects()) ?? 0) < expected) return false;
      const left = await this.#number(
        "select (select count(*) from sagabox.outbox)::integer + (select count(*) from sagabox.queue)::integer as value",
      );
      return left === 0 && HANDLERS.every((handler) => (this.#broker?.backlog(handler) ?? 0) === 0);
    };
    return until("everything is done", idle, { timeoutMs }).then(
      () => true,
      () => false,
    );
  }

  /** Heal, come to rest, judge, say good-bye. */
  async conclude(timeoutMs?: number): Promise<Conclusion> {
    const done = await this.quiescence(timeoutMs);
    const evidence = await this.#evidence();
    const { violations, duplicates } = check(evidence);
    if (violations.length > 0 && this.#options.sabotage === undefined) keepEvidence(evidence, this.fleet.log);
    await this.#waitForReplacements();
    const taken = await takeOvers(this.pool, this.faults, this.#starvation, this.leaseMs);
    const exits = await this.fleet.retireAll();
    return {
      outcome: {
        done,
        enough: evidence.committed.length >= this.#options.messages,
        violations,
        accounting: await this.#checkConservation(),
        unexpected: this.fleet.unexpected,
        badExits: exits.filter((code) => code !== 0),
        rest: await whatIsLeft(this.pool),
      },
      messages: evidence.committed.length,
      duplicates,
      takeOvers: taken,
      log: countEvents(this.fleet.log),
    };
  }

  /** The product's own account, beside ours: I-08. */
  async #checkConservation(): Promise<readonly string[]> {
    const { findings, total, skipped } = await verifyConservation(pgDatabase(this.pool), "sagabox");
    const reported = findings.map(
      ({ kind, count, ids }) => `${kind} × ${count}: ${ids.slice(0, 3).join(" ")}`,
    );
    const uneven =
      total.written === total.sent && skipped === 0 ? [] : [JSON.stringify({ ...total, skipped })];
    return [...reported, ...uneven];
  }

  // What the killed held is left for good when the others are sent home before they could take it.
  async #waitForReplacements(): Promise<void> {
    await this.fleet.allReady();
    const alive = this.fleet.workers.map(({ id }) => id);
    const sql =
      "select count(*)::integer as value from sagabox.relay_lane where split_part(owner, '/', 1) <> all ($1::text[])";
    const taken = async (): Promise<boolean> =>
      (await this.pool.query<{ value: number }>(sql, [alive])).rows[0]?.value === 0;
    await until("the lanes of the fallen are taken", taken, { timeoutMs: 30_000 }).catch(() => undefined);
  }

  async #evidence(): Promise<Evidence> {
    return {
      handlers: HANDLERS,
      groups: await this.#groups(),
      committed: await readCommitted(this.pool),
      wire: isBrokerKind(this.#options.mode) ? [] : (this.#broker?.arrivals ?? (await readWire(this.pool))),
      effects: await readEffects(this.pool),
      laneMoves: await readLaneMoves(this.pool),
      settles: await readSettles(this.pool),
      faults: this.faults,
    };
  }

  // Copies at a real broker are not recorded; the effects are.
  async #groups(): Promise<readonly string[]> {
    if (isBrokerKind(this.#options.mode)) return [];
    if (this.#broker !== undefined) return ["broker"];
    const { rows } = await this.pool.query<{ id: string }>("select id::text from sagabox.consumer_group");
    return rows.map(({ id }) => id);
  }

  async #number(sql: string): Promise<number | undefined> {
    try {
      const { rows } = await this.pool.query<{ value: number }>(sql);
      return rows[0]?.value;
    } catch {
      return undefined;
    }
  }

  async #end(): Promise<void> {
    await this.fleet.killAll();
    this.#starvation.stop();
    await this.#broker?.stop();
    await this.pool.end();
  }
}

export function pickOne<T>(choices: readonly T[]): T {
  const chosen = choices[Math.floor(Math.random() * choices.length)];
  if (chosen === undefined) throw new Error("There is nothing to choose from.");
  return chosen;
}

function countEvents(log: readonly LogLine[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { level, event } of log) counts[`${level} ${event}`] = (counts[`${level} ${event}`] ?? 0) + 1;
  return counts;
}

export interface Conclusion {
  readonly outcome: {
    readonly done: boolean;
    readonly enough: boolean;
    readonly violations: readonly Violation[];
    /** What the conservation check finds at the end. */
    readonly accounting: readonly string[];
    readonly unexpected: readonly string[];
    readonly badExits: readonly (number | string)[];
    readonly rest: Readonly<Record<string, number>>;
  };
  readonly messages: number;
  readonly duplicates: number;
  readonly takeOvers: readonly TakeOver[];
  /** How often each warning and error was logged. */
  readonly log: Readonly<Record<string, number>>;
}

/** Everything is done, nothing violated, no process died, nothing is left. */
export const PERFECT: Conclusion["outcome"] = {
  done: true,
  enough: true,
  violations: [],
  accounting: [],
  unexpected: [],
  badExits: [],
  rest: NOTHING,
};
