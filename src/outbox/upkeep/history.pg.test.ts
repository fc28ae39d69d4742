import { expect, onTestFinished, test } from "vitest";
import { anOutgoing, outboxDatabase } from "../../../test/support/relays.ts";
import { addDays, dailyTables, ensurePartitions, History, partition, PartitionKeeper } from "./history.ts";

const DAY_MS = 86_400_000;
const [messages] = dailyTables;

async function setup() {
  const parts = await outboxDatabase();
  const { database, observer, rows } = parts;
  const history = new History({ database, schema: "sagabox", retentionMs: 30 * DAY_MS, observer });
  const [{ today } = { today: "" }] = await rows<{ today: string }>(
    "select (clock_timestamp() at time zone 'utc')::date::text as today",
  );
  const names = async (table = "message"): Promise<string[]> => {
    const found = await rows<{ name: string }>(
      `select relid::text as name from pg_partition_tree('sagabox.${table}') where isleaf order by 1`,
    );
    return found.map(({ name }) => name.replace("sagabox.", ""));
  };
  /** Moves today's rows that many days back, to a partition of their own. */
  const age = async (days: number): Promise<string> => {
    const old = partition(messages, addDays(today, -days));
    await new PartitionKeeper(database, "sagabox").attach(old);
    await rows("alter table sagabox.outbox disable trigger outbox_legal_moves");
    for (const table of ["message", "outbox", "queue"]) {
      await rows(`update sagabox.${table} set written_on = $1 where written_on = $2`, [old.day, today]);
    }
    await rows("alter table sagabox.outbox enable trigger outbox_legal_moves");
    return old.name;
  };
  return { ...parts, history, today, names, age };
}

const expectedNames = (table: string, today: string): string[] => [
  ...Array.from({ length: 8 }, (_, days) => `${table}_${addDays(today, days).replaceAll("-", "")}`),
  `${table}_default`,
];

test("A15: a fresh schema gets partitions for today and a week ahead, and a second run changes nothing", async () => {
  const { database, history, today, names, observer } = await setup();
  await ensurePartitions(database, "sagabox", observer);
  for (const table of ["message", "receipt"]) expect(await names(table)).toEqual(expectedNames(table, today));
  expect(observer.of("history.partition")).toHaveLength(16);
  expect(await history.tidy()).toBe(true);
  expect(observer.of("history.partition")).toHaveLength(16);
});

test("A15: a message is written to the partition of its day", async () => {
  const { database, rows, write, today } = await setup();
  await ensurePartitions(database, "sagabox");
  await write({});
  expect(
    await rows(
      "select relname as name from sagabox.message join pg_class on pg_class.oid = message.tableoid",
    ),
  ).toEqual([{ name: `message_${today.replaceAll("-", "")}` }]);
});

test("A15: messages in the default partition move to their own after their day, and stay readable", async () => {
  const { history, rows, write, names, today } = await setup();
  await write({ message: { id: "early" } });
  await rows(`insert into sagabox.message select (json_populate_record(m, json_build_object('id', 'older', 'written_on', m.written_on - 3))).*
                from sagabox.message as m`);
  expect(await history.tidy()).toBe(true);
  expect(await rows("select id from sagabox.message_default")).toEqual([{ id: "early" }]);
  expect(await names()).toEqual([
    partition(messages, addDays(today, -3)).name,
    ...expectedNames("message", today).slice(1),
  ]);
  expect(await rows("select id, data from sagabox.message order by id")).toEqual([
    { id: "early", data: "{}" },
    { id: "older", data: "{}" },
  ]);
});

test("A15: attaching neither waits for open publishes nor blocks publishers", async () => {
  const { database, rows, history, observer, write, writer } = await setup();
  await ensurePartitions(database, "sagabox");
  const last = (
    await rows<{ name: string }>(
      "select max(relname) as name from pg_class where relname ~ '^message_[0-9]{8}$'",
    )
  )[0]?.name;
  await rows(`drop table sagabox.${last}`);
  const open = await database.begin();
  await writer.write(open, [anOutgoing()]);
  expect(await history.tidy()).toBe(true);
  await write({ message: { id: "meanwhile" } });
  expect(observer.of("history.partition")).toEqual([{ action: "attached", partition: last }]);
  await open.commit();
});

test("A15: blocked by a reader, a change gives up soon, emits an event, and succeeds later", async () => {
  const { database, pool, rows, history, age, write, observer, names } = await setup();
  await ensurePartitions(database, "sagabox");
  await write({});
  const old = await age(40);
  await rows("delete from sagabox.outbox");
  const reader = await pool.connect();
  await reader.query("begin");
  await reader.query("select count(*) from sagabox.message");
  expect(await history.tidy()).toBe(false);
  expect(observer.of("history.partition")).toContainEqual({ action: "kept", partition: old });
  await reader.query("commit");
  reader.release();
  expect(await history.tidy()).toBe(true);
  expect(await names()).not.toContain(old);
});

test("A15: a partition older than the retention is dropped, a newer one stays", async () => {
  const { rows, history, age, write, observer, names } = await setup();
  await write({ message: { id: "kept" } });
  const young = await age(30);
  await write({ message: { id: "gone" } });
  const old = await age(31);
  await rows("delete from sagabox.outbox");
  await history.tidy();
  expect(await names()).toContain(young);
  expect(await rows("select to_regclass($1) as there", [`sagabox.${old}`])).toEqual([{ there: null }]);
  expect(await rows("select id from sagabox.message")).toEqual([{ id: "kept" }]);
  expect(observer.of("history.partition")).toContainEqual({ action: "dropped", partition: old });
});

test("O-19: an unsent and an undelivered message older than the retention outlive their partition", async () => {
  const { rows, history, age, write, names } = await setup();
  await write(
    { message: { id: "unsent", data: '{"n":1}' } },
    { message: { id: "undelivered" } },
    { message: { id: "sent" } },
  );
  await rows(`insert into sagabox.queue (lane, topic, type, message_id, written_on, due_at)
              select 256, topic, type, message_id, written_on, due_at from sagabox.outbox where message_id = 'undelivered'`);
  await rows("delete from sagabox.outbox where message_id <> 'unsent'");
  const old = await age(45);
  expect(await history.tidy()).toBe(true);
  expect(await names()).not.toContain(old);
  const waiting = `select id, data from sagabox.message join
    (select message_id, written_on from sagabox.outbox union all select message_id, written_on from sagabox.queue) as waiting
     on id = message_id and waiting.written_on = message.written_on order by id`;
  expect(await rows(waiting)).toEqual([
    { id: "undelivered", data: "{}" },
    { id: "unsent", data: '{"n":1}' },
  ]);
  expect(await rows("select id from sagabox.message where id = 'sent'")).toEqual([]);
});

test("X-23: a row that is being settled keeps its partition until it is done", async () => {
  const { pool, rows, history, age, write, names, observer } = await setup();
  await write({ message: { id: "busy" } });
  const old = await age(45);
  const settler = await pool.connect();
  await settler.query("begin");
  await settler.query("delete from sagabox.outbox");
  const tidied = history.tidy();
  await observer.until("history.partition", 8);
  expect(await names()).toContain(old);
  await settler.query("rollback");
  settler.release();
  await tidied;
  await history.tidy();
  expect(await names()).not.toContain(old);
  expect(await rows("select 1 from sagabox.outbox join sagabox.message using (written_on)")).toHaveLength(1);
});

test("needed rows of a partition left detached by a crash are moved, and it is dropped", async () => {
  const { database, rows, history, age, write } = await setup();
  await write({ message: { id: "unsent" } });
  const old = await age(45);
  await new PartitionKeeper(database, "sagabox").detach(
    partition(
      messages,
      addDays(
        (await rows<{ d: string }>("select max(written_on)::text as d from sagabox.outbox"))[0]?.d ?? "",
        0,
      ),
    ),
  );
  expect(await history.tidy()).toBe(true);
  expect(await rows("select to_regclass($1) as there", [`sagabox.${old}`])).toEqual([{ there: null }]);
  expect(await rows("select id from sagabox.message join sagabox.outbox on id = message_id")).toEqual([
    { id: "unsent" },
  ]);
});

test("concurrent tidy() calls of several processes do the work once without errors", async () => {
  const { database, observer, names, today } = await setup();
  const one = (): History => new History({ database, schema: "sagabox", retentionMs: 30 * DAY_MS, observer });
  await Promise.all([one().tidy(), one().tidy(), one().tidy(), ensurePartitions(database, "sagabox")]);
  await ensurePartitions(database, "sagabox");
  expect(await names()).toEqual(expectedNames("message", today));
});

test("A3: a caller's id is kept while a message has it, and deleted after", async () => {
  const { rows, history, age, write, observer } = await setup();
  await write({ message: { id: "archived" }, ownId: true });
  await write({ message: { id: "planned" }, ownId: true, delayMs: 60_000 });
  await rows("insert into sagabox.published_id (id, written_on) values ('dropped', current_date)");
  await rows("update sagabox.published_id set written_on = written_on - 45");
  await history.tidy();
  expect(await rows("select id from sagabox.published_id order by id")).toEqual([
    { id: "archived" },
    { id: "planned" },
  ]);
  expect(observer.of("history.cleaned")).toEqual([{ table: "published_id", count: 1 }]);
  await age(45);
  await rows("delete from sagabox.outbox");
  await history.tidy();
  expect(await rows("select id from sagabox.published_id")).toEqual([{ id: "planned" }]);
});

test("the service tidies at its start and continues after a failure", async () => {
  const { rows, history, observer } = await setup();
  await rows("alter table sagabox.message_default rename to elsewhere");
  await history.start();
  onTestFinished(() => history.stop());
  expect(await observer.until("storage.failed")).toMatchObject([{ doing: "keeping the history" }]);
  await rows("alter table sagabox.elsewhere rename to message_default");
  await observer.until("history.partition", 14);
  await history.stop();
  expect(observer.of("history.partition").every(({ action }) => action === "attached")).toBe(true);
});
