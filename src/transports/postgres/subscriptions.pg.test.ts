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

/** A relay whose hops land in the queue of this database. */
function startHopping(house: Relays) {
  const transport = postgres();
  const { database, observer } = house;
  const hop = transport.attach({ database, schema: "sagabox", channel: "c", leaseMs: 5_000, observer });
  onTestFinished(() => transport.close());
  return house.relay({ transport, hop });
}

/** Acts as others would, right after a statement of the transaction has run. */
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

async function listQueued(house: Relays): Promise<string[]> {
  const rows = await house.rows<{ message_id: string }>("select message_id from sagabox.queue order by seq");
  return rows.map((row) => row.message_id);
}

const createOutgoing = (id: string) => outgoing({ id, key: "k" });

test("from the beginning: what leaves the outbox between the long copy and the lock is there once, in its order", async () => {
  const house = await relays();
  const relay = startHopping(house);
  await relay.start();
  await house.publish(createOutgoing("1"));
  await house.drained();
  await relay.stop();
  await house.publish(createOutgoing("2"));
  const writer = await house.database.begin();
  const second = startHopping(house);
  const seam = after(house.database, "sagabox.queue.copy_past", async () => {
    await writer.commit();
    await house.publish(createOutgoing("4"));
    await second.start();
    await house.drained();
  });
  // The writer begins after everybody of before has ended, and is not visible to the copy.
  const database = after(seam, "sagabox.queue.horizon", async () => {
    await house.writer.write(writer, [createOutgoing("3")]);
  });
  await subscribeGroup(database, "sagabox", "books", fromBeginning);
  await house.publish(createOutgoing("5"));
  await house.drained();
  expect(await listQueued(house)).toEqual(["1", "2", "3", "4", "5"]);
});

test("from the beginning: an old message that leaves the outbox in between is known by its name", async () => {
  const house = await relays();
  const relay = startHopping(house);
  await house.publish(createOutgoing("old"), outgoing({ id: "stays", key: "o", holdsOnDeath: true }));
  await house.tamper(
    "update sagabox.message set written_on = written_on - 9; update sagabox.outbox set written_on = written_on - 9",
  );
  const database = after(house.database, "sagabox.queue.copy_past", async () => {
    await relay.start();
    await house.drained();
  });
  await subscribeGroup(database, "sagabox", "books", fromBeginning);
  expect((await listQueued(house)).toSorted()).toEqual(["old", "stays"]);
});

test("from the beginning: an old dead letter that is replayed in between is there once", async () => {
  const house = await relays();
  house.transport.answer = () => "refused";
  const broker = house.relay();
  await house.publish(createOutgoing("dead"));
  await broker.start();
  await house.drained();
  await broker.stop();
  await house.tamper("update sagabox.message set written_on = written_on - 9");
  const relay = startHopping(house);
  const database = after(house.database, "sagabox.queue.copy_past", async () => {
    const [letter] = await house.rows<{ id: string }>("select id::text from sagabox.dead_letter");
    await replayDeadLetter(deadLetterStore(house.database, "sagabox"), letter?.id ?? "");
    await relay.start();
    await house.drained();
  });
  await subscribeGroup(database, "sagabox", "books", fromBeginning);
  expect(await listQueued(house)).toEqual(["dead"]);
});

test("a writer that does not end keeps no consumer from starting, and nothing of it is missed", async () => {
  const house = await relays();
  const relay = startHopping(house);
  const writer = await house.database.begin();
  await house.writer.write(writer, [createOutgoing("slow")]);
  const database = after(house.database, "sagabox.queue.copy_past", async () => {
    await writer.commit();
    await house.tamper(
      "update sagabox.message set written_on = written_on - 9; update sagabox.outbox set written_on = written_on - 9",
    );
    await relay.start();
    await house.drained();
  });
  await subscribeGroup(database, "sagabox", "books", fromBeginning);
  expect(await listQueued(house)).toEqual(["slow"]);
}, 20_000);

test("while a dump holds the table a new consumer does not get in, says why, and no hop waits behind it", async () => {
  const house = await relays();
  await house.pool.query(
    `insert into sagabox.consumer_group (name) values ('others');
     insert into sagabox.subscription (topic, group_id) values ('${TOPIC}', 1)`,
  );
  await startHopping(house).start();
  const dump = await house.pool.connect();
  onTestFinished(() => dump.release(true));
  await dump.query("begin; lock table sagabox.subscription in access share mode");
  let ended = false;
  const refused = subscribeGroup(house.fresh(), "sagabox", "books", fromBeginning).finally(
    () => (ended = true),
  );
  const told = expect(refused).rejects.toMatchObject({ code: "TRANSPORT_UNREACHABLE" });
  for (const id of ["1", "2", "3", "4", "5"]) {
    await house.publish(createOutgoing(id));
    await house.drained();
  }
  expect(ended).toBe(false);
  await told;
  await dump.query("commit");
  await subscribeGroup(house.fresh(), "sagabox", "books", fromBeginning);
  expect(await listQueued(house)).toEqual(["1", "2", "3", "4", "5", "1", "2", "3", "4", "5"]);
}, 30_000);

test("a command that another group has claimed is subscribed to without a look at the history or a lock", async () => {
  const house = await relays();
  await subscribeGroup(house.database, "sagabox", "first", unclaimed);
  const seen: string[] = [];
  const database = after(
    house.database,
    "sagabox.queue.lock_subscriptions",
    async () => void seen.push("lock"),
  );
  await subscribeGroup(database, "sagabox", "second", unclaimed);
  expect(seen).toEqual([]);
  expect(await house.rows("select count(*)::int as n from sagabox.subscription")).toEqual([{ n: 2 }]);
});

test("members of one new group that begin together copy the history once", async () => {
  const house = await relays();
  const relay = startHopping(house);
  await relay.start();
  await house.publish(createOutgoing("1"), createOutgoing("2"));
  await house.drained();
  const members = [house.fresh(), house.fresh(), house.fresh()];
  await Promise.all(members.map((database) => subscribeGroup(database, "sagabox", "books", fromBeginning)));
  expect(await listQueued(house)).toEqual(["1", "2"]);
});

test("a group hears once that it is new to a topic, and where it begins; of those that come together one does", async () => {
  const house = await relays();
  const join = async (group: string, from: TopicRequest["from"]) => {
    const members = [house.fresh(), house.fresh()];
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

test("what is looked through under the lock are the partitions of the last days; of the archive only what is named", async () => {
  const house = await relays();
  await house.pool.query(
    `create table sagabox.message_old partition of sagabox.message for values from ('2020-01-01') to ('2020-02-01')`,
  );
  const client = await house.pool.connect();
  onTestFinished(() => client.release(true));
  await client.query("set enable_seqscan = off"); // what is small is read whole otherwise
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

test("a group that is retired gets nothing more, also what left the outbox meanwhile", async () => {
  const house = await relays();
  const relay = startHopping(house);
  const { id } = await subscribeGroup(house.database, "sagabox", "books", fromBeginning);
  await relay.start();
  await house.publish(createOutgoing("1"));
  await house.drained();
  let hopped = false;
  const database = after(house.database, "sagabox.queue.retire", async () => {
    if (hopped) return;
    hopped = true;
    await house.publish(createOutgoing("2"));
    await house.drained();
  });
  const tx = await database.begin();
  expect(await retireGroup(tx, "sagabox", id)).toEqual({ subscriptions: 1, deliveries: 2 });
  await tx.commit();
  await house.publish(createOutgoing("3"));
  await house.drained();
  expect(await listQueued(house)).toEqual([]);
});
