import { expect, test, vi } from "vitest";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { consumerStatements } from "../consumers/statements.ts";
import { overviewStatements } from "../overview/statements.ts";
import { outboxStatements } from "./statements.ts";

vi.setConfig({ testTimeout: 60_000 });

interface Node {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Actual Rows": number;
  readonly "Actual Loops": number;
  readonly Plans?: readonly Node[];
}

test("G8: looking costs what is shown, not what is there", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  const rows = "generate_series(1, 20000) as n";
  await pool.query(`insert into sagabox.consumer_group (name) values ('billing'), ('stock')`);
  for (const [table, lane] of [
    ["outbox", "n % 256"],
    ["queue", "256 + n % 512"],
  ]) {
    await pool.query(
      `insert into sagabox.${table} (lane, seq, stream, topic, type, message_id, written_on, due_at)
       select ${lane}, n, n % 5000, 't', 'x', 'm' || n, current_date, now() from ${rows}`,
    );
  }
  await pool.query(
    `insert into sagabox.consumer_inbox (consumer_name, event_id, source_topic, event_type, consumed_at)
     select 'c' || n % 5, 'm' || n, 't', 'x', now() - (20000 - n) * interval '1 minute' from ${rows}`,
  );
  await pool.query("vacuum analyze");
  /** How many rows of the big tables were read, in all. */
  const read = async (text: string, values: readonly unknown[]): Promise<number> => {
    const plan = await pool.query<{ "QUERY PLAN": [{ Plan: Node }] }>(
      `explain (analyze, format json) ${text}`,
      [...values],
    );
    const total = (node: Node): number =>
      (node["Relation Name"] === undefined ? 0 : node["Actual Rows"] * node["Actual Loops"]) +
      (node.Plans ?? []).reduce((sum, inner) => sum + total(inner), 0);
    const [found] = plan.rows;
    return found === undefined ? Number.NaN : total(found["QUERY PLAN"][0].Plan);
  };
  const [outbox, overview, consumers] = [outboxStatements, overviewStatements, consumerStatements].map((of) =>
    of('"sagabox"'),
  ) as [
    ReturnType<typeof outboxStatements>,
    ReturnType<typeof overviewStatements>,
    ReturnType<typeof consumerStatements>,
  ];
  const listed = (open: boolean, ...more: unknown[]) =>
    read(outbox.list(open).text, [20, null, null, ...more]);
  // Of each lane as many as are shown; then the one message and the one in front of each.
  expect(await listed(false, null, null, "0", 0, null, 0)).toBeLessThan(256 * 20 + 100);
  expect(await listed(true, null, null, "0", 0, null, 0)).toBeLessThan(256 * 20 + 100);
  expect(await listed(true, 7, "failed", "0", 0, null, 0)).toBeLessThan(2_100);
  expect(await read(consumers.show.text, ["m77"])).toBeLessThan(50);
  // A range of blocks holds more than the hour that was asked for, and no more.
  expect(await read(consumers.list(false).text, [20, 3_600_000, null, null, null])).toBeLessThan(15_000);
  // What is counted is counted up to its limit; the oldest are the first of each lane.
  expect(await read(overview.outbox.text, [1_000])).toBeLessThan(1_000 + 256 * 4 + 100);
  expect(await read(overview.consumers.text, [1_000])).toBeLessThan(2 * (1_000 + 256 * 4) + 100);
  expect(await read(outbox.stats.text, [1_000])).toBeLessThan(1_100);
});
