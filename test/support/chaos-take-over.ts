import type pg from "pg";
import type { Fault } from "../chaos/evidence.ts";
import type { Starvation } from "./chaos-starvation.ts";

export interface TakeOver {
  readonly ms: number;
  /** Who lost its lanes, and who took the last of them. */
  readonly who: string;
  /** How long the machine kept that one from running meanwhile. */
  readonly starvedMs: number;
}

/** From each fault until the last lane of its victim had a new owner, as the lanes' audit has it. */
export function takeOvers(
  pool: pg.Pool,
  faults: readonly Fault[],
  starvation: Starvation,
): Promise<TakeOver[]> {
  return Promise.all(
    faults.map(async ({ worker, fromMs, toMs }) => {
      const { rows } = await pool.query<{ atMs: number; owner: string }>(
        `select (extract(epoch from at) * 1000)::double precision as "atMs", to_owner as owner from a_lane
          where from_owner like $1 and to_owner is not null
            and at >= to_timestamp($2::double precision / 1000) and at <= to_timestamp($3::double precision / 1000)
          order by at desc limit 1`,
        [`${worker}/%`, fromMs, toMs > fromMs ? toMs : fromMs + 600_000],
      );
      const { atMs, owner } = rows[0] ?? { atMs: fromMs, owner: "nobody" };
      return {
        ms: Math.max(0, Math.round(atMs - fromMs)),
        who: `${worker} to ${owner}`,
        starvedMs: starvation.waitedMs(owner.split("/")[0] ?? "", fromMs, atMs),
      };
    }),
  );
}

/** Those that took longer than the lease and a second, what the machine took away from both ends not counted. */
export function lateTakeOvers(taken: readonly TakeOver[], leaseMs: number): TakeOver[] {
  return taken.filter(({ ms, starvedMs }) => ms > leaseMs + 1_000 + 2 * starvedMs);
}

export function takeOverFigures(taken: readonly TakeOver[]): Record<string, number> {
  const worst = [...taken].sort((a, b) => b.ms - a.ms)[0];
  return { "worst take-over ms": worst?.ms ?? 0, "of it starved ms": worst?.starvedMs ?? 0 };
}
