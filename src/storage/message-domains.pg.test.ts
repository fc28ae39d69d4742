import { expect, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { pgDatabase } from "./drivers/pg.ts";
import { migrateUp } from "./migrate.ts";

const SCHEMA = "user"; // a word of SQL

async function setup() {
  const { pool } = await temporaryDatabase();
  await migrateUp(pgDatabase(pool), SCHEMA);
  const rows = async (text: string) =>
    (await pool.query<Record<string, unknown>>(text.replaceAll("own.", `"${SCHEMA}".`))).rows;
  return { rows };
}

const write = (change: Readonly<Record<string, string>> = {}) => {
  const given = {
    id: "'m'",
    lane: "3",
    kind: "'event'",
    version: "1",
    priority: "5",
    attempts: "0",
    most: "10",
    ...change,
  };
  return `with kept as (
      insert into own.message (id, written_on, seq, lane, kind, type, schema_version, topic, correlation_id, traceparent,
                               source, priority, max_attempts, data, written_at)
      values (${given.id}, current_date, 1, ${given.lane}, ${given.kind}, 't', ${given.version}, 'topic', 'c', 'p', 's',
              ${given.priority}, ${given.most}, '{}', now()))
    insert into own.outbox (lane, seq, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at)
    values (${given.lane}, 1, 'topic', 't', ${given.id}, current_date, ${given.priority}, ${given.attempts}, ${given.most}, now())`;
};

test("the domains of message and outbox columns refuse values out of range", async () => {
  const { rows } = await setup();
  await rows(write());
  expect(await rows("select event_id, status, attempts from own.outbox_events")).toEqual([
    { event_id: "m", status: "pending", attempts: 0 },
  ]);
  await rows("delete from own.outbox; delete from own.message");
  const wrong = {
    id: "''",
    lane: "256",
    kind: "'rumour'",
    version: "0",
    priority: "10",
    attempts: "-1",
    most: "0",
  };
  for (const [what, value] of Object.entries(wrong)) {
    await expect(rows(write({ [what]: value })), what).rejects.toMatchObject({ code: "23514" });
  }
  await rows(write({ id: "repeat('x', 255)", lane: "255", priority: "9" }));
});

test("A5: a condition on a column of outbox_events reaches both scheduled and written messages", async () => {
  const { rows } = await setup();
  const plan = await rows("explain select event_id from own.outbox_events where priority = 7");
  const lines = plan.map((line) => String(line["QUERY PLAN"]));
  const scan = lines.findIndex((line) => line.includes("Seq Scan on message_default"));
  expect(lines[scan + 1]).toMatch(/Filter: .*priority/);
});
