import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { pgDatabase } from "./drivers/pg.ts";
import { migrateUp } from "./migrate.ts";
import { migrations } from "./migrations.generated.ts";

const SCHEMA = "user"; // a word of SQL
const BEFORE = migrations.filter(({ version }) => version < 13);

async function setup() {
  const { pool, name } = await temporaryDatabase();
  const database = pgDatabase(pool);
  await migrateUp(database, SCHEMA, BEFORE);
  const rows = async (text: string) =>
    (await pool.query<Record<string, unknown>>(text.replaceAll("own.", `"${SCHEMA}".`))).rows;
  return { rows, name, migrate: () => migrateUp(database, SCHEMA) };
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

test("G12: columns get types that refuse what the tables refused, and nothing is rewritten", async () => {
  const { rows, migrate } = await setup();
  await rows(write());
  const files = () =>
    rows(`select relname, relfilenode from pg_class
           where relname in ('message_default', 'message_default_pkey', 'outbox') and relnamespace = '"${SCHEMA}"'::regnamespace
           order by 1`);
  const before = await files();
  await migrate();
  expect(await files()).toEqual(before);
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

test("G10, G12: views keep their rights, comments and barriers, and get no others", async () => {
  const { rows, name, migrate } = await setup();
  const [reader, stranger] = [`reader_${name}`, `stranger_${name}`];
  await rows(`create role ${reader}; create role ${stranger}`);
  onTestFinished(async () => {
    await rows(`drop owned by ${reader}, ${stranger}; drop role ${reader}, ${stranger}`);
  });
  await rows(`alter default privileges in schema "${SCHEMA}" grant select on tables to ${stranger};
              grant select on own.masked_outbox, own.masked_outbox_events to ${reader};
              grant select (event_id, status) on own.outbox_events to ${reader} with grant option;
              grant select on own.masked_message to public;
              comment on view own.masked_message is 'what may be seen'`);
  const views = () =>
    rows(`select relname, reloptions, relacl::text, obj_description(pg_class.oid, 'pg_class') as comment,
                 (select array_agg(attname || attacl::text order by attname) from pg_attribute
                   where attrelid = pg_class.oid and attacl is not null) as columns
            from pg_class where relkind = 'v' and relnamespace = '"${SCHEMA}"'::regnamespace order by 1`);
  const before = await views();
  await migrate();
  expect(await views()).toEqual(before);
});

test("A5: what is scheduled and what is written are one list to whoever looks for a priority", async () => {
  const { rows, migrate } = await setup();
  await migrate();
  const plan = await rows("explain select event_id from own.outbox_events where priority = 7");
  const lines = plan.map((line) => String(line["QUERY PLAN"]));
  const scan = lines.findIndex((line) => line.includes("Seq Scan on message_default"));
  expect(lines[scan + 1]).toMatch(/Filter: .*priority/);
});

test("G12: a view of somebody's own is named, and nothing is changed", async () => {
  const { rows, migrate } = await setup();
  await rows("create view public.mine as select id, priority from own.message");
  await expect(migrate()).rejects.toMatchObject({
    code: "STORAGE_MIGRATION_FAILED",
    message: expect.stringContaining("view mine"),
  });
  expect(await rows("select event_id from own.outbox_events")).toEqual([]);
  await rows("drop view public.mine; create view public.theirs as select event_id from own.outbox_events");
  await expect(migrate()).rejects.toThrow("view theirs");
  await rows("drop view public.theirs");
  await migrate();
});
