import { command, createBus, event } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { rolesHarness } from "../../../test/support/roles-harness.ts";
import { pgDatabase, type Database, type Session } from "../../storage/index.ts";
import { examine, type ExamineOptions } from "./examine.ts";

async function setup() {
  const { pool, name } = await temporaryDatabase();
  const bus = createBus({ service: "shop", database: pool, log: false, conservation: { every: "1s" } });
  onTestFinished(async () => void (await bus.stop()));
  await bus.migrate();
  const database = pgDatabase(pool);
  const rows = async (sql: string): Promise<void> => void (await pool.query(sql));
  const found = async (options: ExamineOptions = {}): Promise<readonly string[]> => {
    const { findings } = await examine(database, "sagabox", options);
    return findings
      .filter(({ severity }) => severity !== "fine")
      .map(({ check, seen }) => `${check}: ${seen}`);
  };
  return { pool, name, bus, database, rows, found };
}

const matching = (found: readonly string[], text: RegExp) => found.filter((line) => text.test(line));

test("G13: a schema fresh from its migrations has no drift, and the server of the tests is found to be careless", async () => {
  const { database } = await setup();
  const { findings, healthy } = await examine(database, "sagabox");
  expect(healthy).toBe(false);
  expect(findings.filter(({ check }) => check === "schema")).toMatchObject([{ severity: "fine" }]);
  expect(findings.filter(({ check }) => check === "durability")).toMatchObject([
    { severity: "problem", seen: "fsync is off", fix: expect.stringContaining("fsync = on") as string },
    { seen: "full_page_writes is off" },
    { seen: "synchronous_commit is off" },
  ]);
  for (const check of [
    "server version",
    "migrations",
    "rights",
    "wake-up",
    "clock",
    "partitions",
    "audit log",
  ]) {
    expect(
      findings.filter((one) => one.check === check),
      check,
    ).toMatchObject([{ severity: "fine" }]);
  }
  expect(findings.filter(({ check }) => check === "relay")).toMatchObject([{ severity: "problem" }]);
});

test.each(["shop", "order"])("G13: a schema of another name has no drift either (%s)", async (schema) => {
  const { pool } = await temporaryDatabase();
  const bus = createBus({ service: "shop", database: pool, schema, log: false });
  onTestFinished(async () => void (await bus.stop()));
  await bus.migrate();
  const { findings } = await examine(pgDatabase(pool), schema);
  expect(findings.filter(({ check }) => check === "schema")).toMatchObject([{ severity: "fine" }]);
});

test("G13: damage to the schema, its tables and its days is named, with what mends it", async () => {
  const { rows, found } = await setup();
  await rows("drop index sagabox.outbox_stream");
  await rows("alter table sagabox.outbox disable trigger outbox_legal_moves");
  await rows("alter table sagabox.queue set (autovacuum_enabled = false)");
  await rows("alter table sagabox.outbox reset (autovacuum_vacuum_scale_factor)");
  await rows("alter table sagabox.dead_letter drop constraint dead_letter_check");
  await rows("create index mine on sagabox.queue (topic)");
  await rows("alter table sagabox.reply set unlogged");
  await rows(`do $$ begin execute format('drop table sagabox.%I',
                'message' || to_char((clock_timestamp() at time zone 'utc')::date + 2, '"_"YYYYMMDD')); end $$`);
  const all = await found();
  for (const text of [
    /^schema: index outbox_stream is missing/,
    /^schema: trigger outbox.outbox_legal_moves .*disabled/,
    /^schema: constraint dead_letter.dead_letter_check is missing/,
    /^schema: 1 object\(s\) that no migration created: index mine/,
    /^tables: autovacuum is switched off for sagabox.queue/,
    /^tables: sagabox.outbox has lost its autovacuum settings/,
    /^partitions: missing for the coming days: message_\d{8}$/,
  ]) {
    expect(matching(all, text), String(text)).toHaveLength(1);
  }
});

test("G13: an open transaction and a slot without a reader are named", async () => {
  const { pool, name, rows, found } = await setup();
  const client = await pool.connect();
  await client.query("begin; select 1");
  await rows(`select pg_create_logical_replication_slot('${name}', 'pgoutput')`);
  const all = await found({ longMs: 0 });
  await client.query("rollback");
  client.release();
  expect(matching(all, /^long transactions: idle in transaction for/)).toHaveLength(1);
  expect(matching(all, new RegExp(`^replication slots: Slot ${name} has no reader`))).toHaveLength(1);
  await rows(`select pg_drop_replication_slot('${name}')`);
});

test("G13: what nobody consumes, handles, decides or seals is named", async () => {
  const { bus, rows, found } = await setup();
  const Place = command("doctor.place", { schema: z.object({}) });
  const Placed = event("doctor.placed", { schema: z.object({}) });
  await bus.transaction((tx) => tx.publish(Place, {}));
  await rows("insert into sagabox.consumer_group (name) values ('billing')");
  await rows("insert into sagabox.subscription (topic, group_id) values ('elsewhere', 1)");
  await rows(`insert into sagabox.queue (lane, topic, type, message_id, written_on, due_at)
              select 256 + lane, topic, type, id, written_on, now() from sagabox.message`);
  await rows(`insert into sagabox.dead_letter (origin, message_id, kind, type, schema_version, topic, correlation_id, traceparent,
                source, priority, max_attempts, headers, data, written_at, reason, attempts, error_type, error_message, failed_at)
              select 'outbox', id, kind, type, 1, topic, 'c', 'p', 's', 5, 10, '{}', '{}', now(), 'rejected', 1, 'E', 'e',
                     now() - interval '13 days' from sagabox.message`);
  await rows(`insert into sagabox.saga_instance (id, saga_type, definition_version, correlation_id, status, input, state, trace_id,
                traceparent, message_correlation_id) values ('s-1', 't', 1, 'k', 'failed', '{}', '{"records":{}}', 't', 'p', 'c')`);
  await rows(
    "insert into sagabox.audit_log (actor, action, target_kind, outcome, timestamp) values ('a', 'b', 'c', 'done', now() - interval '1 hour')",
  );
  await rows(`update sagabox.conservation set checked_at = now(), state = '{"wrong":{"message x 0":[]}}'`);
  await bus.transaction((tx) => tx.publish(Placed, {})); // an event that nobody wants is nobody's fault
  const all = await found();
  for (const text of [
    /^topics: no consumer has subscribed to commands.doctor.place$/,
    /^consumers: consumer "billing" has no live member, and deliveries wait/,
    /^dead letters: 1 open, the oldest for 13 d/,
    /^sagas: 1 incident, such as s-1/,
    /^audit log: rows have not been sealed for 1 h/,
    /^conservation: 1 place/,
  ]) {
    expect(matching(all, text), String(text)).toHaveLength(1);
  }
});

test("G13: a pooler that swallows hints is found out", async () => {
  const { database } = await setup();
  const deaf: Database = {
    size: database.size,
    run: (statement, params) => database.run(statement, params),
    begin: (options) => database.begin(options),
    close: () => database.close(),
    session: async (purpose, settings): Promise<Session> => {
      const session = await database.session(purpose, settings);
      return {
        broken: false,
        run: (statement, params) => session.run(statement, params),
        listen: () => Promise.resolve(),
        onBreak: (told) => session.onBreak(told),
        release: () => session.release(true),
      };
    },
  };
  const { findings } = await examine(deaf, "sagabox", { patienceMs: 100 });
  expect(findings.filter(({ check }) => check === "wake-up")).toMatchObject([
    { severity: "problem", fix: expect.stringContaining("session mode") as string },
  ]);
});

test("G13: running workers make relay, conservation and retention fine; production adds its own questions", async () => {
  const { bus, database } = await setup();
  await bus.run();
  const production = { health: null, keyRing: false, secrets: { files: 1, open: [] }, debugLog: false };
  const look = () => examine(database, "sagabox", { production });
  let { findings } = await look();
  const of = (check: string) => findings.filter((one) => one.check === check);
  const looked = async () => {
    ({ findings } = await look());
    return ["relay", "conservation", "retention", "keys", "secrets"].map((check) => of(check));
  };
  await expect.poll(looked).toMatchObject(Array.from({ length: 5 }, () => [{ severity: "fine" }]));
  expect(of("TLS")).toMatchObject([
    { severity: "fine", seen: expect.stringContaining("this machine") as string },
  ]);
  expect(of("least privilege")).toMatchObject([{ severity: "problem" }]);
  expect(of("workers")).toMatchObject([{ severity: "problem", seen: "1 process(es) alive" }]);
});

test("G13: an operator is not told that all is well with sessions of others, and sees them once it may", async () => {
  const { as, pool } = await rolesHarness();
  const [operator, worker] = [await as("operator"), await as("worker")];
  const { rows: names } = await operator.query<{ name: string }>("select current_user as name");
  const client = await worker.connect();
  await client.query("begin; select 1");
  const look = async () => {
    const { findings } = await examine(pgDatabase(operator), "sagabox", { longMs: 0 });
    return findings.filter(({ check }) => check === "long transactions");
  };
  const before = await look();
  await pool.query(`grant pg_read_all_stats to "${names[0]?.name}"`);
  const after = await look();
  await client.query("rollback");
  client.release();
  expect(before).toMatchObject([
    {
      severity: "advice",
      seen: expect.stringMatching(/^could not be checked: .*\d+ session\(s\) of other users/) as string,
      fix: expect.stringContaining(`grant pg_read_all_stats to "${names[0]?.name}"`) as string,
    },
  ]);
  expect(after.filter(({ seen }) => seen.startsWith("idle in transaction for"))).toHaveLength(1);
  expect(after.filter(({ seen }) => seen.startsWith("could not"))).toEqual([]);
});

test("G13: an operator counts the connections of others, whose kind it is not shown", async () => {
  const { as, pool } = await rolesHarness();
  const clients = await Promise.all([pool.connect(), pool.connect(), pool.connect()]);
  const { findings } = await examine(pgDatabase(await as("operator")), "sagabox");
  for (const client of clients) client.release();
  const [connections] = findings.filter(({ check }) => check === "connections");
  expect(Number(/^(\d+) of/.exec(connections?.seen ?? "")?.[1])).toBeGreaterThan(3);
});

test("G13: an operator may ask the doctor everything; whoever may do nothing is told what was not looked at", async () => {
  const { as } = await rolesHarness();
  const { findings } = await examine(pgDatabase(await as("operator")), "sagabox");
  expect(findings.filter(({ seen }) => seen.startsWith("could not")).map(({ check }) => check)).toEqual([
    "long transactions",
  ]);
  expect(findings.find(({ check }) => check === "rights")?.seen).toContain("operator");
  const viewer = await examine(pgDatabase(await as("viewer")), "sagabox");
  expect(viewer.findings.some(({ seen }) => seen.startsWith("could not be checked"))).toBe(true);
});
