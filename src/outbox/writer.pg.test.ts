import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { outgoing, relays, until, type Relays } from "../../test/support/relays.ts";
import { pgDatabase, type Queryable } from "../storage/index.ts";
import { postgres } from "../transports/postgres/index.ts";
import { aMessage } from "../../test/support/messages.ts";

/**
 * Runs `work` while the sequence is locked. Returns whether the waiting backend has its transaction id by
 * then.
 */
async function whileSequenceIsShut(
  harness: Relays,
  sequence: string,
  work: () => Promise<unknown>,
): Promise<boolean> {
  const shut = await harness.pool.connect();
  await shut.query(`begin; alter sequence sagabox.${sequence} owned by none`);
  const done = work();
  const waiting = async () =>
    harness.rows<{ numbered: boolean }>(
      `select backend_xid is not null as numbered from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'`,
    );
  await until(async () => (await waiting()).length === 1);
  const [answer] = await waiting();
  await shut.query("rollback");
  shut.release();
  await done;
  return answer?.numbered === true;
}

test("rule 5: the first statement of a transaction takes its transaction id before it draws a seq", async () => {
  const harness = await relays();
  const ways = {
    one: () => harness.publish(outgoing()),
    several: () => harness.publish(outgoing(), outgoing()),
    ownId: () => harness.publish(outgoing({ ownId: true })),
    leased: () => harness.optimistic().send(outgoing()),
    severalLeased: () => harness.optimistic().send(outgoing(), outgoing()),
  };
  for (const [way, work] of Object.entries(ways)) {
    expect([way, await whileSequenceIsShut(harness, "outbox_seq", work)]).toEqual([way, true]);
  }
});

test("rule 5: deliveries of the Postgres transport take their transaction id first too", async () => {
  const harness = await relays();
  const transport = postgres();
  const { database, observer } = harness;
  const hop = transport.attach({ database, schema: "sagabox", channel: "c", leaseMs: 5_000, observer });
  await harness.pool.query(
    `insert into sagabox.consumer_group (name) values ('g');
     insert into sagabox.subscription (topic, group_id) values ('events.order.placed', 1)`,
  );
  const signal = new AbortController().signal;
  const direct = () => transport.publish([aMessage()], { signal });
  expect(await whileSequenceIsShut(harness, "queue_seq", direct)).toBe(true);
  await harness.publish(outgoing());
  const relayed = () => harness.relay({ hop, transport }).start();
  expect(await whileSequenceIsShut(harness, "queue_seq", relayed)).toBe(true);
  const leased = () => harness.optimistic({ hop, transport }).send(outgoing());
  expect(await whileSequenceIsShut(harness, "queue_seq", leased)).toBe(true);
  await transport.close();
});

test("rule 5: with strict order the second writer of a key waits for the first", async () => {
  const harness = await relays();
  const first = await harness.database.begin();
  await harness.writer.write(first, [outgoing({ id: "first", key: "k", strict: true })]);
  let second = false;
  const waiting = harness
    .publish(outgoing({ id: "second", key: "k", strict: true }))
    .then(() => (second = true));
  await until(async () => (await harness.rows("select 1 from pg_locks where not granted")).length === 1);
  await harness.publish(outgoing({ id: "other", key: "other", strict: true }));
  expect(second).toBe(false);
  await first.commit();
  await waiting;
  const order = await harness.rows(
    "select message_id from sagabox.outbox where message_id <> 'other' order by seq",
  );
  expect(order.map((row) => row["message_id"])).toEqual(["first", "second"]);
});

test("rule 5: writers of the same keys in opposite orders do not deadlock", async () => {
  const harness = await relays();
  const keys = ["a", "b", "c", "d"];
  const write = (order: readonly string[]) =>
    harness.publish(...order.map((key) => outgoing({ key, strict: true })));
  await Promise.all(Array.from({ length: 40 }, (_, n) => write(n % 2 === 0 ? keys : keys.toReversed())));
  expect(await harness.waiting()).toBe(160);
});

test("A1: a message exists if and only if its transaction committed, savepoints included", async () => {
  const harness = await relays();
  const gone = await harness.database.begin();
  await harness.writer.write(gone, [outgoing({ id: "rolled back" })]);
  await gone.rollback();
  const { scope } = harness.optimistic({ optimistic: false });
  const tx = await harness.database.begin();
  const own = scope(tx);
  await own.add(outgoing({ id: "before" }));
  await tx.query("savepoint s");
  await own.add(outgoing({ id: "inside" }));
  await own.flush();
  await tx.query("rollback to savepoint s");
  await own.add(outgoing({ id: "after" }));
  own.handleCommit(await tx.commit(own.lastStatements()));
  const ids = await harness.rows("select message_id from sagabox.outbox order by seq");
  expect(ids.map((row) => row["message_id"])).toEqual(["before", "after"]);
  expect(await harness.rows("select 1 from sagabox.message where id in ('rolled back', 'inside')")).toEqual(
    [],
  );
});

test.each([
  ["/* shop */ savepoint s", "-- back\nrollback /* all */ to s"],
  ["select 1; savepoint s", "select 1; ROLLBACK WORK TO SAVEPOINT s; select 2"],
])(
  "A1: a savepoint in %j is seen, and what was published in it is rolled back with it",
  async (make, undo) => {
    const harness = await relays();
    const { scope } = harness.optimistic({ optimistic: false });
    const tx = await harness.database.begin();
    const own = scope(tx);
    await own.add(outgoing({ id: "before" }));
    await tx.query(make);
    await own.add(outgoing({ id: "inside" }));
    await tx.query(undo);
    own.handleCommit(await tx.commit(own.lastStatements()));
    const ids = await harness.rows("select message_id from sagabox.outbox order by seq");
    expect(ids.map((row) => row["message_id"])).toEqual(["before"]);
  },
);

test("A3: a used id writes nothing, also after the first was sent, and only once per call", async () => {
  const harness = await relays();
  const tx = await harness.database.begin();
  const again = outgoing({ id: "mine", ownId: true });
  expect(await harness.writer.write(tx, [again, again])).toEqual(new Set(["mine"]));
  await tx.commit();
  await harness.relay().start();
  await harness.drained();
  const later = await harness.database.begin();
  expect(await harness.writer.write(later, [again, outgoing({ id: "new", ownId: true })])).toEqual(
    new Set(["new"]),
  );
  await later.commit();
  await harness.drained();
  expect(harness.transport.ids).toEqual(["mine", "new"]);
  expect(harness.observer.of("outbox.duplicate")).toMatchObject([{ id: "mine" }]);
});

const GENERATED = "01932f2e-7b1a-7c3d-8e4f-0123456789ab";

test.each([
  ["sent at once", {}],
  ["for later", { schedule: { delayMs: 3_600_000, atMs: null } }],
])("A3: the generated id of a message %s counts as used, today and on other days", async (_, wish) => {
  const harness = await relays();
  await harness.publish(outgoing({ id: GENERATED, ...wish }));
  const again = (tx: Queryable) =>
    harness.writer.write(tx, [
      outgoing({ id: GENERATED, ownId: true }),
      outgoing({ id: "new", ownId: true }),
      outgoing({ id: "later", ownId: true, schedule: { delayMs: 3_600_000, atMs: null } }),
    ]);
  const scheduled = outgoing({ id: GENERATED, ownId: true, schedule: { delayMs: 1, atMs: null } });
  for (const written of [["new", "later"], [], []]) {
    const tx = await harness.database.begin();
    expect(await again(tx)).toEqual(new Set(written));
    expect(await harness.writer.write(tx, [scheduled])).toEqual(new Set());
    await tx.commit();
    await harness.tamper("update sagabox.message set written_on = written_on - 1");
  }
  const ids = await harness.rows<{ id: string }>(
    "select id from sagabox.message union all select id from sagabox.scheduled order by id",
  );
  expect(ids.map(({ id }) => id)).toEqual([GENERATED, "later", "new"]);
});

test("A3: the second of two concurrent writers of an id waits, and writes only if the first is rolled back", async () => {
  const harness = await relays();
  for (const [end, written] of [
    ["commit", []],
    ["rollback", ["rollback"]],
  ] as const) {
    const [first, second] = [await harness.database.begin(), await harness.database.begin()];
    const mine = [outgoing({ id: end, ownId: true })];
    await harness.writer.write(first, mine);
    const waiting = harness.writer.write(second, mine);
    await until(async () => (await harness.rows("select 1 from pg_locks where not granted")).length === 1);
    await first[end]();
    expect(await waiting).toEqual(new Set(written));
    await second.commit();
    expect(await harness.rows("select 1 from sagabox.message where id = $1", [end])).toHaveLength(1);
  }
});

test.each([
  ["on", "off", "off"],
  ["off", "on", "off"],
  ["off", "off", "on"],
])(
  "A12: messages written together keep their order, however the server joins (hash %s, merge %s, loop %s)",
  async (hash, merge, loop) => {
    const harness = await relays();
    await harness.pool.query(
      `do $$ begin execute format('alter database %I set enable_hashjoin = ${hash}', current_database());
                   execute format('alter database %I set enable_mergejoin = ${merge}', current_database());
                   execute format('alter database %I set enable_nestloop = ${loop}', current_database()); end $$;
       insert into sagabox.consumer_group (name) values ('g');
       insert into sagabox.subscription (topic, group_id) values ('events.order.placed', 1)`,
    );
    const pool = new pg.Pool({ connectionString: harness.url, max: 5 });
    onTestFinished(() => pool.end());
    const database = pgDatabase(pool);
    const ids = Array.from({ length: 40 }, (_, n) => `m${n}`);
    const tx = await database.begin();
    await harness.writer.write(
      tx,
      ids.map((id) => outgoing({ id, key: "k", ownId: true })),
    );
    await tx.commit();
    const written = await harness.rows("select message_id from sagabox.outbox order by seq");
    expect(written.map((row) => row["message_id"])).toEqual(ids);
    const transport = postgres();
    const home = { database, schema: "sagabox", channel: "c", leaseMs: 5_000, observer: harness.observer };
    const hop = transport.attach(home);
    await transport.publish(
      ids.map((id) => aMessage({ id: `d${id}`, key: "k" })),
      {
        signal: new AbortController().signal,
      },
    );
    const places = await harness.rows<{ lane: number; seq: string }>(
      "select lane, seq from sagabox.outbox order by seq",
    );
    const list = (values: readonly (string | number)[]) => `{${values.join(",")}}`;
    await database.run(hop.settleLeased, [
      list(places.map((row) => row.lane)),
      list(places.map((row) => row.seq)),
      list(written.map((row) => String(row["message_id"]))),
      "sender",
    ]);
    const queued = await harness.rows("select message_id from sagabox.queue order by seq");
    expect(queued.map((row) => row["message_id"])).toEqual([...ids.map((id) => `d${id}`), ...ids]);
    await transport.close();
  },
);
