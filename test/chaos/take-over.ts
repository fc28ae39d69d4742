import { readFileSync } from "node:fs";
import type pg from "pg";
import type { Fault } from "./evidence.ts";
import { until } from "./until.ts";

const EVERY_MS = 50;

interface Sample {
  readonly atMs: number;
  /** How long the process has been ready to run without getting a processor, all its life. */
  readonly waitedMs: number;
}

/**
 * How long the machine kept the processes of the fleet from running. A take-over is a handful of steps; on a machine
 * that is busy elsewhere no process can be quick, which must not count as a fault of the product. Only Linux reports it;
 * elsewhere every process counts as served at once.
 */
export class Starvation {
  readonly #samples = new Map<string, Sample[]>();
  readonly #running: () => readonly { readonly id: string; readonly pid: number }[];
  #timer: NodeJS.Timeout | undefined;

  constructor(running: () => readonly { readonly id: string; readonly pid: number }[]) {
    this.#running = running;
  }

  start(): void {
    this.#timer ??= setInterval(() => this.#look(), EVERY_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  waitedMs(id: string, fromMs: number, toMs: number): number {
    const around = (this.#samples.get(id) ?? []).filter(
      ({ atMs }) => atMs >= fromMs - EVERY_MS && atMs <= toMs + EVERY_MS,
    );
    return Math.round((around.at(-1)?.waitedMs ?? 0) - (around[0]?.waitedMs ?? 0));
  }

  #look(): void {
    const atMs = Date.now();
    for (const { id, pid } of this.#running()) {
      const waitedMs = waitedBy(pid);
      const known = this.#samples.get(id);
      if (known === undefined) this.#samples.set(id, [{ atMs, waitedMs }]);
      else known.push({ atMs, waitedMs });
    }
  }
}

function waitedBy(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[1]) / 1e6;
  } catch {
    return 0;
  }
}

export interface TakeOver {
  readonly ms: number;
  /** Who lost its lanes, and who took the last of them. */
  readonly who: string;
  /** How long the machine kept that one from running meanwhile. */
  readonly starvedMs: number;
}

/**
 * From each fault until the last lane of its victim had a new owner, as the lanes' audit has it. A victim that owned lanes
 * that no worker took counts as infinite; a worker that owned no lanes counts as nothing.
 */
export async function takeOvers(
  pool: pg.Pool,
  faults: readonly Fault[],
  starvation: Starvation,
  leaseMs: number,
): Promise<TakeOver[]> {
  // The last victim's lanes may have been empty: then everything is done before a worker had to take them.
  const allTaken = async (): Promise<boolean> => {
    const left = await Promise.all(faults.map((fault) => leftBehind(pool, fault)));
    return left.every((lanes) => lanes === 0);
  };
  await until("the lanes of the fallen are taken", allTaken, { timeoutMs: 5 * leaseMs, everyMs: 250 }).catch(
    () => undefined,
  );
  return Promise.all(
    faults.map(async (fault) => {
      const { worker, fromMs, toMs } = fault;
      const { rows } = await pool.query<{ atMs: number; owner: string }>(
        `select (extract(epoch from at) * 1000)::double precision as "atMs", to_owner as owner from a_lane
          where from_owner like $1 and to_owner is not null
            and at >= to_timestamp($2::double precision / 1000) and at <= to_timestamp($3::double precision / 1000)
          order by at desc limit 1`,
        [`${worker}/%`, fromMs, toMs > fromMs ? toMs : fromMs + 600_000],
      );
      const left = await leftBehind(pool, fault);
      if (left > 0) return { ms: Infinity, who: `${left} lanes of ${worker} not taken`, starvedMs: 0 };
      const { atMs, owner } = rows[0] ?? { atMs: fromMs, owner: "no worker" };
      return {
        ms: Math.max(0, Math.round(atMs - fromMs)),
        who: `${worker} to ${owner}`,
        starvedMs: starvation.waitedMs(owner.split("/")[0] ?? "", fromMs, atMs),
      };
    }),
  );
}

/** How many lanes it owned when it was hit that have neither been taken from it nor given up by it since. */
async function leftBehind(pool: pg.Pool, { worker, fromMs }: Fault): Promise<number> {
  const { rows } = await pool.query<{ lanes: number }>(
    `select count(*)::integer as lanes
       from (select distinct on (lane) lane, to_owner from a_lane
              where at <= to_timestamp($2::double precision / 1000) order by lane, n desc) as held
      where held.to_owner like $1
        and not exists (select 1 from a_lane as later
                         where later.lane = held.lane and later.from_owner = held.to_owner
                           and later.at > to_timestamp($2::double precision / 1000))`,
    [`${worker}/%`, fromMs],
  );
  return rows[0]?.lanes ?? 0;
}

/** Those that took longer than the lease and a second, what the machine took away from both ends not counted. */
export function lateTakeOvers(taken: readonly TakeOver[], leaseMs: number): TakeOver[] {
  return taken.filter(({ ms, starvedMs }) => ms > leaseMs + 1_000 + 2 * starvedMs);
}

export function takeOverFigures(taken: readonly TakeOver[]): Record<string, number> {
  const worst = [...taken].sort((a, b) => b.ms - a.ms)[0];
  return { "worst take-over ms": worst?.ms ?? 0, "of it starved ms": worst?.starvedMs ?? 0 };
}
