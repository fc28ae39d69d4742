import { expect, onTestFinished, test } from "vitest";
import { outgoing, relays, type Relays } from "../../../test/support/relays.ts";
import { deadLetterStore, replayDeadLetter } from "../../dead-letter/index.ts";
import { quoteSchema, type Database, type OwnedTransaction } from "../../storage/index.ts";
import type { TopicRequest } from "../../transport/index.ts";
import { postgres, retireGroup } from "./index.ts";
import { subscribeStatements } from "./subscribe-statements.ts";
import { subscribeGroup } from "./postgres-transport.ts";

const TOPIC = "events.order.placed";
const fromBeginning = [{ topic: TOPIC, kind: "event", from: "beginning" }] as const;
const unclaimed = [{ topic: TOPIC, kind: "command", from: "unclaimed" }] as const;

/** Starts a relay whose hops write to the queue of this database. */
function startHopping(harness: Relays) {
  const transport = postgres();
  const { database, observer } = harness;
  const hop = transport.attach({ database, schema: "sagabox", channel: "c", leaseMs: 5_000, observer });
  onTestFinished(() => transport.close());
  return harness.relay({ transport, hop });
}

/** Runs `act` right after the transaction has run the named statement. */
function after(database: Database, name: string, act: () => Promise<void>): Database {
  const begin = async (...options: Parameters<Database["begin"]>): Promise<OwnedTransaction> => {
    const tx = await database.begin(...options);
    const run = tx.run.bind(tx);
    return Object.assign(tx, {
      run: async (...[statement, params]: Parameters<typeof run>) => {
        const answer = await run(statement, params);
        if (statement.name === name) await act();
        return answer;
      },
    });
  };
  return {
    size: database.size,
    run: (statement, params) => database.run(statement, params),
    session: (purpose, settings) => database.session(purpose, settings),
    begin,
    close: () => database.close(),
  };
}

async function listQueued(harness: Relays): Promise<string[]> {
  const rows = await harness.rows<{ message_id: string }>(
    "select message_id from sagabox.queue order by seq",
  );
  return rows.map((row) => row.message_id);
}

const createOutgoing = (id: string) => outgoing({ id, key: "k" });

test("from the beginning: a message that leaves the outbox between the long copy and the lock is copied once, in order", async () => {
  const harness = await relays();
  const relay = startHopping(harness);
  await relay.start();
  await harness.publish(createOutgoing("1"));
  await harness.drained();
  await relay.stop();
  await harness.publish(createOutgoing("2"));
  const writer = await harness.database.begin();
  const second = startHopping(harness);
  const seam = after(harness.database, "sagabox.queue.copy_past", async () => {
    await writer.commit();
    await harness.publish(createOutgoing("4"));
    await second.start();
    await harness.drained();
  });
  // This writer begins after all earlier writers have ended, and is not visible to the copy.
  const database = after(seam, "sagabox.queue.horizon", async () => {
    await harness.writer.write(writer, [createOutgoing("3")]);
  });
  await subscribeGroup(database, "sagabox", "books", fromBeginning);
  await harness.publish(createOutgoing("5"));
  await harness.drained();
  expect(await listQueued(harness)).toEqual(["1", "2", "3", "4", "5"]);
});

test("from the beginning: an old message that leaves the outbox in between is found by its id", async () => {
  const harness = await relays();
  const relay = startHopping(harness);
  await harness.publish(createOutgoing("old"), outgoing({ id: "stays", key: "o", holdsOnDeath: true }));
  await harness.tamper(
    "update sagabox.message set written_on = written_on - 9; update sagabox.outbox set written_on = written_on - 9",
  );
  const database = after(harness.database, "sagabox.queue.copy_past", async () => {
    await relay.start();
    await harness.drained();
  });
  await subscribeGroup(database, "sagabox", "books", fromBeginning);
  expect((await listQueued(harness)).toSorted()).toEqual(["old", "stays"]);
});

test("from the beginning: an old dead letter that is replayed in between is copied once", async () => {
  const harness = await relays();
  harness.transport.answer = () => "refused";
  const broker = harness.relay();
  await harness.publish(createOutgoing("dead"));
  await broker.start();
  await harness.drained();
  await broker.stop();
  await harness.tamper("update sagabox.message set written_on = written_on - 9");
  const relay = startHopping(harness);
  const database = after(harness.database, "sagabox.queue.copy_past", async () => {
    const [deadLetter] = await harness.rows<{ id: string }>("select id::text from sagabox.dead_letter");
    await replayDeadLetter(deadLetterStore(harness.database, "sagabox"), deadLetter?.id ?? "");
    await relay.start();
    await harness.drained();
  });
  await subscribeGroup(database, "sagabox", "books", fromBeginning);
  expect(await listQueued(harness)).toEqual(["dead"]);
});

test("an open writer does not block a starting consumer, and its messages are not missed", async () => {
  const harness = await relays();
  const relay = startHopping(harness);
  const writer = await harness.database.begin();
  await harness.writer.write(writer, [createOutgoing("slow")]);
  const database = after(harness.database, "sagabox.queue.copy_past", async () => {
    await writer.commit();
    await harness.tamper(
      "update sagabox.message set written_on = written_on - 9; update sagabox.outbox set written_on = written_on - 9",
    );
    await relay.start();
    await harness.drained();
  });
  await subscribeGroup(database, "sagabox", "books", fromBeginning);
  expect(await listQueued(harness)).toEqual(["slow"]);
}, 20_000);

test("while a dump holds the table, subscribing fails with a reason and hops are not blocked", async () => {
  const harness = await relays();
  await harness.pool.query(
    `insert into sagabox.consumer_group (name) values ('others');
     insert into sagabox.subscription (topic, group_id) values ('${TOPIC}', 1)`,
  );
  await startHopping(harness).start();
  const dump = await harness.pool.connect();
  onTestFinished(() => dump.release(true));
  await dump.query("begin; lock table sagabox.subscription in access share mode");
  let ended = false;
  const refused = subscribeGroup(harness.fresh(), "sagabox", "books", fromBeginning).finally(
    () => (ended = true),
  );
  const rejection = expect(refused).rejects.toMatchObject({ code: "TRANSPORT_UNREACHABLE" });
  for (const id of ["1", "2", "3", "4", "5"]) {
    await harness.publish(createOutgoing(id));
    await harness.drained();
  }
  expect(ended).toBe(false);
  await rejection;
  await dump.query("commit");
  await subscribeGroup(harness.fresh(), "sagabox", "books", fromBeginning);
  expect(await listQueued(harness)).toEqual(["1", "2", "3", "4", "5", "1", "2", "3", "4", "5"]);
}, 30_000);

test("subscribing to a command that another group has claimed neither reads history nor locks", async () => {
  const harness = await relays();
  await subscribeGroup(harness.database, "sagabox", "first", unclaimed);
  const seen: string[] = [];
  const database = after(
    harness.database,
    "sagabox.queue.lock_subscriptions",
    async () => void seen.push("lock"),
  );
  await subscribeGroup(database, "sagabox", "second", unclaimed);
  expect(seen).toEqual([]);
  expect(await harness.rows("select count(*)::int as n from sagabox.subscription")).toEqual([{ n: 2 }]);
});

test("members of one new group that start together copy the history once", async () => {
  const harness = await relays();
  const relay = startHopping(harness);
  await relay.start();
  await harness.publish(createOutgoing("1"), createOutgoing("2"));
  await harness.drained();
  const members = [harness.fresh(), harness.fresh(), harness.fresh()];
  await Promise.all(members.map((database) => subscribeGroup(database, "sagabox", "books", fromBeginning)));
  expect(await listQueued(harness)).toEqual(["1", "2"]);
});

test("one member of a new group learns that the group is new to a topic, and where it starts", async () => {
  const harness = await relays();
  const join = async (group: string, from: TopicRequest["from"]) => {
    const members = [harness.fresh(), harness.fresh()];
    const topics = [{ topic: TOPIC, kind: "event" as const, from }];
    const joined = members.map((database) => subscribeGroup(database, "sagabox", group, topics));
    return (await Promise.all(joined)).flatMap(({ begun }) => begun);
  };
  const time = new Date();
  expect(await join("now", "now")).toEqual([{ topic: TOPIC, from: "now" }]);
  expect(await join("now", "beginning")).toEqual([]);
  expect(await join("all", "beginning")).toEqual([{ topic: TOPIC, from: "beginning" }]);
  expect(await join("since", { time })).toEqual([{ topic: TOPIC, from: { time } }]);
  expect(await join("second", "unclaimed")).toEqual([{ topic: TOPIC, from: "now" }]);
});

test("under the lock only the partitions of the last days are searched, and older ones by id", async () => {
  const harness = await relays();
  await harness.pool.query(
    `create table sagabox.message_old partition of sagabox.message for values from ('2020-01-01') to ('2020-02-01')`,
  );
  const client = await harness.pool.connect();
  onTestFinished(() => client.release(true));
  await client.query("set enable_seqscan = off"); // Small tables would be scanned otherwise.
  const { text } = subscribeStatements(quoteSchema("sagabox")).copyRest;
  const day = new Date().toISOString().slice(0, 10);
  const { rows: plan } = await client.query<{ "QUERY PLAN": string }>(`explain ${text}`, [
    TOPIC,
    1,
    "-infinity",
    day,
    "{a,b}",
  ]);
  const old = plan.map((line) => line["QUERY PLAN"]).filter((line) => line.includes("message_old"));
  expect(old.map((line) => line.replace(/^\W+|\s+\(.*$/g, ""))).toEqual([
    expect.stringMatching(/^(Bitmap )?Index Scan (using|on) message_old_pkey/),
  ]);
});

test("a retired group gets nothing more, including messages that left the outbox meanwhile", async () => {
  const harness = await relays();
  const relay = startHopping(harness);
  const { id } = await subscribeGroup(harness.database, "sagabox", "books", fromBeginning);
  await relay.start();
  await harness.publish(createOutgoing("1"));
  await harness.drained();
  let hopped = false;
  const database = after(harness.database, "sagabox.queue.retire", async () => {
    if (hopped) return;
    hopped = true;
    await harness.publish(createOutgoing("2"));
    await harness.drained();
  });
  const tx = await database.begin();
  expect(await retireGroup(tx, "sagabox", id)).toEqual({ subscriptions: 1, deliveries: 2 });
  await tx.commit();
  await harness.publish(createOutgoing("3"));
  await harness.drained();
  expect(await listQueued(harness)).toEqual([]);
});
