import { expect, test } from "vitest";
import { outgoing, relays } from "../../test/support/relays.ts";
import { claimParams } from "../lanes/index.ts";
import { textArray } from "../storage/index.ts";
import { settleStatements } from "./statements.ts";

test("rule 1: a row that somebody changed while its message was sent is settled where it is now", async () => {
  const house = await relays();
  const gate = house.database.pauseBefore("sagabox.outbox.sent");
  await house.publish(outgoing({ id: "changed", key: "k1" }), outgoing({ id: "same", key: "k2" }));
  await house.relay().start();
  await gate.reached;
  await house.tamper("update sagabox.outbox set due_at = now() where message_id = 'changed'");
  gate.open();
  await house.observer.until("relay.batch");
  expect(await house.waiting()).toBe(0);
  expect(house.transport.ids.toSorted()).toEqual(["changed", "same"]);
  expect(house.observer.of("relay.published")).toMatchObject([{ count: 2 }]);
  expect(await house.rows("select count(*)::int as n from sagabox.receipt, unnest(seqs)")).toEqual([
    { n: 2 },
  ]);
});

test("rule 1: what stands in the place of a row that is gone stays", async () => {
  const { publish, pool, rows, database } = await relays();
  const placeOf = async (id: string) =>
    (
      await rows<{ place: string; seq: string; lane: number }>(
        "select ctid::text as place, seq, lane from sagabox.outbox where message_id = $1",
        [id],
      )
    )[0] ?? { place: "", seq: "", lane: -1 };
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
    const params = [...claims, textArray([other.place]), textArray(seqs), "w"];
    return (await database.run<{ gone: number }>(sentInPlace, params)).rows[0]?.gone;
  };
  await expect(settle(gone.seq)).rejects.toThrow("rows of it have moved: 1");
  await expect(settle(other.seq, gone.seq)).rejects.toThrow("rows of it have moved: 1");
  await expect(settle()).rejects.toThrow("rows of it have moved: 1");
  expect(await rows("select message_id from sagabox.outbox")).toEqual([{ message_id: "other" }]);
  expect(await settle(other.seq)).toBe(1);
  await expect(settle(other.seq)).rejects.toThrow("rows of it have moved: 0");
});

test("rule 2: a row that was read before its settling session was opened is known by its id as well", async () => {
  const { database, publish, relay, drained, rows } = await relays();
  const asked: string[] = [];
  const overhear = (): void =>
    database.once("sagabox.outbox.sent", (run, params) => {
      asked.push(params.join(" "));
      return run();
    });
  const running = relay();
  await running.start();
  for (const id of ["first", "second", "third"]) {
    overhear();
    await publish(outgoing({ id }));
    running.lookEverywhere();
    await drained();
    // The server has crashed, as far as the one who settles can tell.
    if (id === "second")
      await rows(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'sagabox settle'",
      );
  }
  expect(asked.map((params) => /first|second|third/.exec(params)?.[0])).toEqual([
    "first",
    undefined,
    "third",
  ]);
});
