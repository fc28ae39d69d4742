import { expect, test } from "vitest";
import { outgoing, relays, until, type RelayOptions } from "../../test/support/relays.ts";
import { claimParams } from "../lanes/index.ts";
import { toArrayLiteral } from "../storage/index.ts";
import { settleStatements } from "./statements.ts";

/** A relay whose settle session is open, so that it settles by ctid. */
async function relayAtWork(wishes: RelayOptions = {}) {
  const harness = await relays();
  const relay = harness.relay(wishes);
  await relay.start();
  await harness.publish(outgoing({ id: "before" }));
  relay.sweepAll();
  await harness.observer.until("relay.batch");
  await harness.rows("delete from sagabox.receipt");
  return { harness, relay };
}

test("rule 1: a row that was changed while its message was sent is settled", async () => {
  const { harness, relay } = await relayAtWork();
  const gate = harness.database.pauseBefore("sagabox.outbox.sent_in_place");
  await harness.publish(outgoing({ id: "changed", key: "k1" }), outgoing({ id: "same", key: "k2" }));
  relay.sweepAll();
  await gate.reached;
  await harness.tamper("update sagabox.outbox set due_at = now() where message_id = 'changed'");
  gate.open();
  await harness.drained();
  await until(() => harness.observer.of("relay.published").length > 1);
  expect(harness.transport.ids.toSorted()).toEqual(["before", "changed", "same"]);
  expect(harness.database.count("sagabox.outbox.sent")).toBe(2); // the first of the session, and this one
  expect(harness.observer.of("relay.published").at(-1)).toMatchObject({ count: 2 });
  expect(await harness.rows("select count(*)::int as n from sagabox.receipt, unnest(seqs)")).toEqual([
    { n: 2 },
  ]);
});

test("rule 1: rows that move and reused ctids: each message is sent once and has one receipt", async () => {
  const { harness, relay } = await relayAtWork({ batchSize: 20 });
  let isOver = false;
  const moving = async (): Promise<void> => {
    while (!isOver) {
      // SKIP LOCKED avoids a deadlock with a settle that has locked other rows of this list.
      const free = "select seq from sagabox.outbox where seq % 7 = 0 for update skip locked";
      await harness.tamper(`update sagabox.outbox set last_error = 'x' where seq in (${free})`);
      await harness.pool.query("vacuum sagabox.outbox");
    }
  };
  const moved = moving();
  for (let n = 0; n < 60; n++) {
    const batch = Array.from({ length: 10 }, (_, i) => outgoing({ key: `k${(n * 7 + i) % 40}` }));
    await harness.publish(...batch);
    relay.hint(batch.map(({ lane }) => lane));
  }
  await harness.drained();
  isOver = true;
  await moved;
  expect(harness.transport.ids).toHaveLength(601);
  expect(new Set(harness.transport.ids).size).toBe(601);
  expect(
    await harness.rows(
      "select count(*)::int as n, count(distinct seq)::int as different from sagabox.receipt, unnest(seqs) as seq",
    ),
  ).toEqual([{ n: 600, different: 600 }]);
});

test("rule 1: a new row with the ctid of a deleted one is not settled", async () => {
  const { publish, pool, rows, database } = await relays();
  const placeOf = async (id: string) =>
    (
      await rows<{ place: string; seq: string; lane: number }>(
        "select ctid::text as place, seq, lane from sagabox.outbox where message_id = $1",
        [id],
      )
    )[0] ?? { place: "", seq: "", lane: -1 };
  await pool.query("vacuum full sagabox.outbox"); // only one page has room, so the next row reuses the ctid
  await publish(outgoing({ id: "gone", key: "k" }));
  const gone = await placeOf("gone");
  await pool.query("delete from sagabox.outbox");
  await pool.query("vacuum sagabox.outbox");
  await publish(outgoing({ id: "other", key: "k" }));
  const other = await placeOf("other");
  expect(other.place).toBe(gone.place);
  await pool.query(
    "insert into sagabox.member (id, scope, worker, lease_until) values ('m', 0, 'w', 'infinity')",
  );
  await pool.query("update sagabox.relay_lane set owner = 'm', fence = 1, token = 't' where lane = $1", [
    other.lane,
  ]);
  const settle = async (...seqs: string[]) => {
    const claims = claimParams([{ lane: other.lane, fence: 1, token: "t" }]);
    const { sentInPlace } = settleStatements('"sagabox"');
    const params = [...claims, toArrayLiteral([other.place]), toArrayLiteral(seqs), "w"];
    return (await database.run<{ gone: number }>(sentInPlace, params)).rows[0]?.gone;
  };
  await expect(settle(gone.seq)).rejects.toThrow("rows of it have moved: 1");
  await expect(settle(other.seq, gone.seq)).rejects.toThrow("rows of it have moved: 1");
  await expect(settle()).rejects.toThrow("rows of it have moved: 1");
  expect(await rows("select message_id from sagabox.outbox")).toEqual([{ message_id: "other" }]);
  expect(await settle(other.seq)).toBe(1);
  await expect(settle(other.seq)).rejects.toThrow("rows of it have moved: 0");
});

test("rule 2: rows are also matched by id if their server may have crashed since the read", async () => {
  const { harness, relay } = await relayAtWork();
  const { database } = harness;
  const settles = () =>
    database.ran.map(({ name }) => name).filter((name) => name.startsWith("sagabox.outbox.sent"));
  database.ran.length = 0;
  for (const id of ["first", "second", "third"]) {
    await harness.publish(outgoing({ id }));
    relay.sweepAll();
    await harness.drained();
    if (id !== "first") continue;
    await harness.rows(
      "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'sagabox settle'",
    );
    await until(
      async () =>
        (await harness.rows("select 1 from pg_stat_activity where application_name = 'sagabox settle'"))
          .length === 0,
    );
  }
  const [inPlace, byName] = ["sagabox.outbox.sent_in_place", "sagabox.outbox.sent"];
  expect(settles()).toEqual([inPlace, byName, inPlace]);
});

test.for([
  { whose: "another one than they were read from", answer: { server: "another" } },
  { whose: "a standby when its session was opened", answer: { server: null } },
])("rule 2: rows are also matched by id on a server that was $whose", async ({ answer }) => {
  const harness = await relays();
  const { database, observer, publish } = harness;
  const relay = harness.relay();
  await relay.start();
  await until(() => relay.ownedLanes === 256);
  // A relay has opened its first session by now; the next one settles.
  database.once("sagabox.session.opened_on", () =>
    Promise.resolve({ rows: [answer], rowCount: 1, command: "SELECT" }),
  );
  for (const id of ["first", "second"]) {
    await publish(outgoing({ id }));
    relay.sweepAll();
    await harness.drained();
  }
  await until(() => observer.of("relay.published").length === 2);
  expect(database.count("sagabox.outbox.sent")).toBe(2);
  expect(database.count("sagabox.outbox.sent_in_place")).toBe(0);
});
