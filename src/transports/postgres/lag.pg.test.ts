import type pg from "pg";
import { expect, test } from "vitest";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { pgDatabase } from "../../storage/index.ts";
import { measureQueueLags } from "./lag.ts";
import { lagStatements } from "./statements.ts";

const ORDERS = "events.order";
const REFUNDS = "events.refund";

async function database() {
  const { pool } = await temporaryDatabase({ migrated: true });
  await pool.query(`
    insert into sagabox.consumer_group (name) values ('mail'), ('stock');
    insert into sagabox.subscription (topic, group_id)
    values ('${ORDERS}', 1), ('${REFUNDS}', 1), ('${ORDERS}', 2)`);
  return pool;
}

/** Adds deliveries of a group; `lanes` spreads them over that many lanes. */
async function deliver(
  pool: pg.Pool,
  { group = 1, count, topic = ORDERS, lanes = 256, due = "now() - interval '90 seconds'" }: Deliveries,
): Promise<void> {
  await pool.query(
    `insert into sagabox.queue (lane, topic, type, message_id, written_on, due_at)
     select ${group} * 256 + n % ${lanes}, '${topic}', 't', 'm-' || n, current_date, ${due}
       from generate_series(1, ${count}) as n`,
  );
}

interface Deliveries {
  readonly group?: number;
  readonly count: number;
  readonly topic?: string;
  readonly lanes?: number;
  readonly due?: string;
}

const aged = (seconds: number) => expect.closeTo(seconds, -2) as number;

test("waiting messages and the age of the oldest are measured by group and topic, with 0 for what is empty", async () => {
  const pool = await database();
  await deliver(pool, { count: 40 });
  await deliver(pool, { count: 2, topic: REFUNDS, due: "now() - interval '2 hours'" });
  await deliver(pool, { count: 3, topic: REFUNDS, due: "'infinity'" }); // dead letters that block their keys
  expect(await measureQueueLags(pgDatabase(pool), "sagabox")).toEqual([
    { group: "mail", topic: ORDERS, waiting: 40, oldestAgeSeconds: aged(90) },
    { group: "mail", topic: REFUNDS, waiting: 2, oldestAgeSeconds: aged(7_200) },
    { group: "stock", topic: ORDERS, waiting: 0, oldestAgeSeconds: 0 },
  ]);
  const ofStock = await measureQueueLags(pgDatabase(pool), "sagabox", ["stock"]);
  expect(ofStock.map(({ group }) => group)).toEqual(["stock"]);
  expect(await measureQueueLags(pgDatabase(pool), "sagabox", [])).toEqual([]);
});

test("messages that wait for a retry are counted and have no age", async () => {
  const pool = await database();
  await deliver(pool, { group: 2, count: 5, due: "now() + interval '1 hour'" });
  expect(await measureQueueLags(pgDatabase(pool), "sagabox", ["stock"])).toEqual([
    { group: "stock", topic: ORDERS, waiting: 5, oldestAgeSeconds: 0 },
  ]);
});

test("beside a backlog of 200,000 a small group is exact, the large one an estimate, and a hidden topic unknown", async () => {
  const pool = await database();
  await deliver(pool, { count: 200_000 });
  await deliver(pool, { group: 2, count: 7 });
  const [large, hidden, small] = await measureQueueLags(pgDatabase(pool), "sagabox");
  expect(small).toEqual({ group: "stock", topic: ORDERS, waiting: 7, oldestAgeSeconds: aged(90) });
  expect(large).toMatchObject({ isEstimate: true, oldestAgeSeconds: aged(90) });
  expect(large?.waiting).toBeGreaterThan(100_000);
  expect(large?.waiting).toBeLessThan(400_000);
  expect(hidden).toMatchObject({ topic: REFUNDS, waiting: "unknown", oldestAgeSeconds: "unknown" });
});

interface PlanNode {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Actual Rows"?: number;
  readonly "Actual Loops"?: number;
  readonly "Rows Removed by Filter"?: number;
  readonly Plans?: readonly PlanNode[];
}

const nodesOf = (node: PlanNode): PlanNode[] => [node, ...(node.Plans ?? []).flatMap(nodesOf)];

test("with statistics of an empty table, or of a full one, it reads a few rows of each lane and a sample", async () => {
  const pool = await database();
  await pool.query("alter table sagabox.queue set (autovacuum_enabled = off)");
  const measure = async () => {
    const { text } = lagStatements('"sagabox"').measure;
    const { rows } = await pool.query<{ "QUERY PLAN": { Plan: PlanNode }[] }>(
      `explain (analyze, timing off, format json) ${text.replaceAll("$1", "null")}`,
    );
    const plan = rows[0]?.["QUERY PLAN"][0]?.Plan;
    if (plan === undefined) throw new Error("The server gave no plan.");
    const scans = nodesOf(plan).filter((node) => node["Relation Name"] === "queue");
    return scans.map((node) => ({
      type: node["Node Type"],
      rows:
        ((node["Actual Rows"] ?? 0) + (node["Rows Removed by Filter"] ?? 0)) * (node["Actual Loops"] ?? 0),
    }));
  };
  await pool.query("analyze sagabox.queue");
  await deliver(pool, { count: 100_000, lanes: 4 });
  const check = async () => {
    const scans = await measure();
    expect(scans.map(({ type }) => type).toSorted()).toEqual(["Index Scan", "Sample Scan"]);
    expect(scans.find(({ type }) => type === "Index Scan")?.rows).toBeLessThanOrEqual(2 * 256 * 16);
    expect(scans.find(({ type }) => type === "Sample Scan")?.rows).toBeLessThan(80_000);
  };
  await check();
  await pool.query("analyze sagabox.queue");
  await check();
});
