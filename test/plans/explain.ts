import type pg from "pg";
import type { Param } from "../../src/storage/index.ts";
import { PLACE_OF_100, type PathStatement } from "./message-path.ts";

interface PlanNode {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly "Index Cond"?: string;
  readonly "Shared Hit Blocks"?: number;
  readonly "Shared Read Blocks"?: number;
  readonly "Actual Rows"?: number;
  readonly "Actual Loops"?: number;
  readonly "Rows Removed by Filter"?: number;
  readonly Plans?: readonly PlanNode[];
}

export interface Work {
  /** Blocks of 8 kB that the statement looked at, in memory or not. */
  readonly blocks: number;
  /** Rows that its scans returned or threw away. */
  readonly rows: number;
  /** Its scans, for the message of a failing test. */
  readonly scans: readonly string[];
}

/** Plans kept by prepared statements, each made in a session with the settings of its statement. */
export class KeptPlans {
  readonly #sessions = new Map<string, pg.PoolClient>();
  readonly #pool: pg.Pool;
  readonly #mode: string;

  constructor(pool: pg.Pool, mode: "force_generic_plan" | "force_custom_plan") {
    this.#pool = pool;
    this.#mode = mode;
  }

  /** Prepares the statements and plans each of them for the tables as they are now. */
  async prepare(path: readonly PathStatement[]): Promise<void> {
    for (const [index, { statement, settings }] of path.entries()) {
      const session = await this.#session(settings);
      await session.query(`prepare "${index}" as ${statement.text}`);
      await this.#explain(path, index, "explain (format json)");
    }
  }

  /** Runs one of them, rolls it back, and returns how much it read. */
  async work(path: readonly PathStatement[], index: number): Promise<Work> {
    const plan = await this.#explain(path, index, "explain (analyze, buffers, timing off, format json)");
    const nodes = flattenNodes(plan);
    const scans = nodes.filter(
      (node) => node["Node Type"].endsWith("Scan") && node["Relation Name"] !== undefined,
    );
    const counted = scans.map((node) => ({ node, rows: countRows(node) }));
    return {
      blocks: (plan["Shared Hit Blocks"] ?? 0) + (plan["Shared Read Blocks"] ?? 0),
      rows: counted.reduce((sum, { rows }) => sum + rows, 0),
      scans: counted.map(
        ({ node, rows }) =>
          `${node["Node Type"]} on ${node["Relation Name"]} ${node["Index Name"] ?? ""} ${node["Index Cond"] ?? ""}: ${rows} rows`,
      ),
    };
  }

  release(): void {
    for (const session of this.#sessions.values()) session.release(true);
  }

  async #session(settings: Readonly<Record<string, string>>): Promise<pg.PoolClient> {
    const key = JSON.stringify(settings);
    const known = this.#sessions.get(key);
    if (known !== undefined) return known;
    const session = await this.#pool.connect();
    this.#sessions.set(key, session);
    const all = { ...settings, plan_cache_mode: settings["plan_cache_mode"] ?? this.#mode };
    for (const setting of Object.entries(all)) {
      await session.query("select set_config($1, $2, false)", setting);
    }
    return session;
  }

  async #explain(path: readonly PathStatement[], index: number, explain: string): Promise<PlanNode> {
    const { params, settings, statement } = path[index] as PathStatement;
    const session = await this.#session(settings);
    await session.query("begin");
    try {
      const place = await session.query<{ place: string }>(
        "select '{\"' || ctid || '\"}' as place from sagabox.outbox where lane = 7 and seq = 100",
      );
      const known = params.map((value) => (value === PLACE_OF_100 ? (place.rows[0]?.place ?? "{}") : value));
      const values = params.length === 0 ? "" : `(${known.map(literal).join(", ")})`;
      const { rows } = await session.query<{ "QUERY PLAN": [{ Plan: PlanNode }] }>(
        `${explain} execute "${index}"${values}`,
      );
      return (rows[0] as { "QUERY PLAN": [{ Plan: PlanNode }] })["QUERY PLAN"][0].Plan;
    } catch (error) {
      throw new Error(`${statement.name}: ${(error as Error).message}`, { cause: error });
    } finally {
      await session.query("rollback");
    }
  }
}

function literal(value: Param | undefined): string {
  return value === null || value === undefined ? "null" : `'${String(value).replaceAll("'", "''")}'`;
}

function flattenNodes(node: PlanNode): PlanNode[] {
  return [node, ...(node.Plans ?? []).flatMap(flattenNodes)];
}

function countRows(node: PlanNode): number {
  const loops = node["Actual Loops"] ?? 0;
  return Math.round(((node["Actual Rows"] ?? 0) + (node["Rows Removed by Filter"] ?? 0)) * loops);
}
