import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { ensurePartitions } from "../../outbox/index.ts";
import { pgDatabase, type Statement } from "../../storage/index.ts";
import { messageStatements } from "./message-statements.ts";
import { tableStatements } from "./statements.ts";

interface PlanNode {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Cond"?: string;
  readonly "TID Cond"?: string;
  readonly "Recheck Cond"?: string;
  readonly "Actual Loops"?: number;
  readonly Plans?: readonly PlanNode[];
}

const NARROWED = ["Index Cond", "TID Cond", "Recheck Cond"] as const;
const LARGE = /^(message|receipt)_\d{8}$|^outbox$/;

function nodesOf(node: PlanNode): PlanNode[] {
  return [node, ...(node.Plans ?? []).flatMap(nodesOf)];
}

test("DESIGN 7C: a window and a page read their own part of the large tables and nothing from end to end", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  await ensurePartitions(pgDatabase(pool), "sagabox");
  const today = "(clock_timestamp() at time zone 'utc')::date";
  await pool.query(
    `insert into sagabox.message (id, written_on, seq, lane, kind, type, schema_version, topic, correlation_id,
            traceparent, source, priority, max_attempts, data, written_at)
     select md5(n::text), ${today}, n, n % 256, 'event', 't', 1, 't', 'c', 'p', 's', 5, 10, '{}', clock_timestamp()
       from generate_series(1, 60000) as n`,
  );
  await pool.query(
    `insert into sagabox.receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs)
     select n % 256, min(n), max(n), array_agg(n), 'r', clock_timestamp(), ${today}, '{}'
       from generate_series(1, 50000) as n group by n % 256, n / 1000`,
  );
  await pool.query(
    `insert into sagabox.outbox (lane, seq, topic, type, message_id, written_on, due_at)
     select lane, seq, topic, type, id, written_on, clock_timestamp() from sagabox.message where seq > 50000`,
  );
  await pool.query("analyze");
  const [messages, places] = [messageStatements('"sagabox"'), tableStatements('"sagabox"')];
  const client = await pool.connect();
  onTestFinished(() => client.release());
  await client.query("begin isolation level repeatable read");
  await client.query(places.limits.text, ["10s"]);
  const scans = async ({ text }: Statement, params: readonly unknown[]): Promise<string[]> => {
    const { rows } = await client.query<{ "QUERY PLAN": { Plan: PlanNode }[] }>(
      `explain (analyze, costs off, timing off, format json) ${text}`,
      [...params],
    );
    const plan = rows[0]?.["QUERY PLAN"][0]?.Plan;
    return nodesOf(plan ?? { "Node Type": "none" })
      .filter(({ "Relation Name": name = "" }) => LARGE.test(name))
      .filter(({ "Actual Loops": loops = 0 }) => loops > 0)
      .filter((node) => NARROWED.every((condition) => node[condition] === undefined))
      .map((node) => `${node["Node Type"]} on ${node["Relation Name"]}`);
  };
  const { rows } = await pool.query<{ day: string }>(`select ${today}::text as day`);
  const day = rows[0]?.day ?? "";
  expect(await scans(messages.window, [day, "(100,0)", "(200,0)", "100"])).toEqual([]);
  expect(await scans(messages.presentNear, ["{1}", "{1}", day, "(0,0)", "(300,0)"])).toEqual([]);
  expect(await scans(messages.traces, ["{x}", "{1}", "{40000}", day])).toEqual([]);
  expect(await scans(places.outbox, [3, "0", 1_000, day])).toEqual([]);
  expect(await scans(places.letters, ["0", 100])).toEqual([]);
  await client.query("rollback");
});
