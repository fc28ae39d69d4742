import type pg from "pg";
import { beforeAll, describe, expect, test } from "vitest";
import { databaseForFile } from "../../test/support/database.ts";
import { readStatements } from "../lanes/statements.ts";
import { migrateUp, pgDatabase, settlingPlans, steadyPlans, type Statement } from "../storage/index.ts";
import { guardedStatements, settleStatements, writeStatements } from "./statements.ts";
import { ensurePartitions } from "./upkeep/history.ts";
import { depthStatements, historyStatements, republishStatements } from "./upkeep/statements.ts";

const SCHEMA = '"sagabox"';

interface PlanNode {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly "Index Cond"?: string;
  readonly "Recheck Cond"?: string;
  readonly "TID Cond"?: string;
  readonly Plans?: readonly PlanNode[];
}

/** Tables that may be large, including daily partitions that are still empty. */
const LARGE = /^(outbox|queue|scheduled|message_\d{8}|receipt_\d{8}|dead_letter)$/;
/** Indexes that stay small: urgent rows, and open dead letters. */
const SMALL_INDEX = /^((outbox|queue)_express|dead_letter_open(_cause)?$)/;

const CONDITIONS = ["Index Cond", "Recheck Cond", "TID Cond"] as const;

function nodesOf(node: PlanNode): PlanNode[] {
  return [node, ...(node.Plans ?? []).flatMap(nodesOf)];
}

/** Returns the scans that read a large table, or a whole index of one, from end to end. */
function fullScans(plan: PlanNode): string[] {
  return nodesOf(plan).flatMap((node) => {
    const { "Node Type": type, "Relation Name": relation = "", "Index Name": index = "" } = node;
    if (!LARGE.test(relation) || !type.endsWith("Scan")) return [];
    const narrowed = CONDITIONS.some((condition) => node[condition] !== undefined);
    return narrowed || SMALL_INDEX.test(index) ? [] : [`${type} on ${relation} ${index}`.trim()];
  });
}

/** The generic plan of a prepared statement. */
async function planOf(client: pg.PoolClient, sql: string): Promise<PlanNode> {
  const parameters = Math.max(0, ...[...sql.matchAll(/\$(\d+)/g)].map(([, number]) => Number(number)));
  const nulls = parameters === 0 ? "" : `(${Array.from({ length: parameters }, () => "null").join(", ")})`;
  await client.query("set plan_cache_mode = force_generic_plan");
  await client.query(`prepare checked as ${sql}`);
  const { rows } = await client.query<{ "QUERY PLAN": { Plan: PlanNode }[] }>(
    `explain (costs off, format json) execute checked${nulls}`,
  );
  await client.query("deallocate checked");
  const plan = rows[0]?.["QUERY PLAN"][0]?.Plan;
  if (plan === undefined) throw new Error("The server gave no plan.");
  return plan;
}

const shared = databaseForFile();
/** Partitions of future days. Custom plans may scan these empty tables; generic plans may not. */
const empty = new Set<string>();
const passing = (scans: readonly string[]): string[] =>
  scans.filter((scan) => !empty.has(scan.split(" on ")[1]?.split(" ")[0] ?? ""));

async function withSettings<T>(
  settings: Readonly<Record<string, string>>,
  work: (client: pg.PoolClient) => Promise<T>,
): Promise<T> {
  const client = await (await shared).pool.connect();
  try {
    for (const setting of Object.entries(settings)) {
      await client.query("select set_config($1, $2, false)", setting);
    }
    return await work(client);
  } finally {
    client.release(true);
  }
}

const narrow = (table: string, firstLane: number) =>
  `insert into sagabox.${table} (lane, seq, stream, topic, type, message_id, written_on, priority, due_at)
   select ${firstLane} + n % 256, n, n % 5000, 'events.t', 't', 'm-' || n, (now() at time zone 'utc')::date,
          case when n % 100 = 0 then 9 else 5 end, now()
     from generate_series(1, 20000) as n`;

const wide = (table: string, columns: string, values: string, count: number) =>
  `insert into sagabox.${table} (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
          correlation_id, traceparent, source, priority, max_attempts, data, written_at, ${columns})
   select 'm-' || n, n % 256, n % 5000, 'event', 't', 1, 'events.t', 'k-' || n % 5000, 'order', 'a-' || n % 5000, 's-' || n % 5000,
          'c', 'p', 'x', 5, 10, '{}', now() - n * interval '1 ms', ${values}
     from generate_series(1, ${count}) as n`;

beforeAll(async () => {
  const { pool } = await shared;
  await migrateUp(pgDatabase(pool), "sagabox");
  await ensurePartitions(pgDatabase(pool), "sagabox");
  const today = "(now() at time zone 'utc')::date";
  await pool.query(wide("message", "seq, written_on", `n, ${today}`, 20_000));
  await pool.query(wide("scheduled", "due_at", "now() + n * interval '1 s'", 5_000));
  await pool.query(narrow("outbox", 0));
  await pool.query(narrow("queue", 256));
  await pool.query(
    `insert into sagabox.published_id select 'm-' || n, ${today} from generate_series(1, 20000) as n`,
  );
  await pool.query(
    `insert into sagabox.receipt select n % 256, n, n, array[n], 'r', now(), ${today} from generate_series(1, 20000) as n`,
  );
  await pool.query(`insert into sagabox.dead_letter (origin, message_id, kind, type, schema_version, topic, correlation_id,
      traceparent, source, priority, max_attempts, headers, data, written_at, reason, attempts, error_type, error_message, closed_at, closed_as)
    select 'outbox', 'm-' || n, 'event', 't', 1, 'events.t', 'c', 'p', 'x', 5, 10, '{}', '{}', now(), 'rejected', 1, 'E', 'e',
           case when n % 50 > 0 then now() end, case when n % 50 > 0 then 'replayed' end
      from generate_series(1, 5000) as n`);
  await pool.query("vacuum analyze");
  const { rows } = await pool.query<{ relname: string }>("select relname from pg_class where reltuples = 0");
  for (const { relname } of rows) empty.add(relname);
});

const list = (statements: Readonly<Record<string, Statement>>): [string, string][] =>
  Object.values(statements).map(({ name, text }) => [name, text]);

// Statistics of a table that was empty when it was last vacuumed and is full now.
const SEEN_EMPTY = `update pg_class set reltuples = 0
   where oid in ('sagabox.outbox'::regclass, 'sagabox.queue'::regclass, 'sagabox.outbox_pkey'::regclass)`;

describe("statements of relay and consumers, with their settings", () => {
  const settling = list(settleStatements(SCHEMA)).map(([name, text]) => [name, text, settlingPlans] as const);
  const reading = [...list(readStatements(SCHEMA, "outbox")), ...list(readStatements(SCHEMA, "queue"))].map(
    ([name, text]) => [name, text, steadyPlans] as const,
  );

  test.each([...settling, ...reading])("A2: %s reads by index only", async (_, text, settings) => {
    expect(
      await withSettings(settings, async (client) => fullScans(await planOf(client, text ?? ""))),
    ).toEqual([]);
  });

  test.each([...settling, ...reading])(
    "A2: %s reads by index only, also when it was planned for an empty table",
    async (_, text, settings) => {
      const scans = await withSettings(settings, async (client) => {
        await client.query("begin");
        await client.query(SEEN_EMPTY);
        const plan = await planOf(client, text ?? "");
        await client.query("rollback");
        return fullScans(plan);
      });
      expect(scans).toEqual([]);
    },
  );
});

// Intended scans: once per dropped partition; a fixed number of pages; the first entry of an index.
const ON_PURPOSE: Readonly<Record<string, string>> = {
  "sagabox.history.still_needed": "Seq Scan",
  "sagabox.outbox.depths": "Sample Scan",
  "sagabox.outbox.backlog": "Sample Scan",
  "sagabox.outbox.queued": "Sample Scan",
  "sagabox.outbox.next_due": "Index Only Scan",
};

describe("statements of any session, with the server's settings", () => {
  test.each([
    ...list(writeStatements(SCHEMA)),
    ...list(guardedStatements(SCHEMA)),
    ...list(historyStatements(SCHEMA)),
    ...list(depthStatements(SCHEMA)),
    ...list(republishStatements(SCHEMA)),
  ])("A2: %s reads by index only", async (name, text) => {
    const scans = await withSettings({}, async (client) => passing(fullScans(await planOf(client, text))));
    const meant = ON_PURPOSE[name];
    expect(scans.filter((scan) => meant === undefined || !scan.startsWith(meant))).toEqual([]);
  });
});

describe("queries of operators", () => {
  test.each([
    ["a message by its id", "select * from sagabox.message where id = $1::text"],
    [
      "the messages of an aggregate",
      "select * from sagabox.message where aggregate_type = $1::text and aggregate_id = $2::text",
    ],
    ["the messages of a saga", "select * from sagabox.message where saga_id = $1::text"],
    ["an event by its id", "select * from sagabox.outbox_events where event_id = $1::text"],
    [
      "the events of an aggregate",
      "select * from sagabox.outbox_events where aggregate_type = $1::text and aggregate_id = $2::text",
    ],
    ["the events of a saga", "select * from sagabox.outbox_events where saga_id = $1::text"],
  ])("A2: %s is found by index", async (_, sql) => {
    expect(await withSettings({}, async (client) => passing(fullScans(await planOf(client, sql))))).toEqual(
      [],
    );
  });
});

test("the check sees a scan of a whole table and of a whole index", async () => {
  await withSettings({}, async (client) => {
    expect(fullScans(await planOf(client, "select * from sagabox.outbox where topic = $1::text"))).toEqual([
      "Seq Scan on outbox",
    ]);
    await client.query("set enable_seqscan = off; set enable_sort = off");
    const ordered = await planOf(
      client,
      "select * from sagabox.scheduled where key = $1::text order by due_at, id",
    );
    expect(fullScans(ordered)).toEqual(["Index Scan on scheduled scheduled_due"]);
  });
});
