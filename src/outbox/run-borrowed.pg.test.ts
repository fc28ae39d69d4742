import { expect, test } from "vitest";
import { outgoing, relays } from "../../test/support/relays.ts";
import type { Queryable } from "../storage/index.ts";
import type { Outgoing } from "./outgoing.ts";

const later = { delayMs: 60_000, atMs: null };
const ways: Record<string, () => Outgoing[]> = {
  usual: () => [outgoing()],
  one: () => [outgoing({ headers: { a: "b" }, ttlMs: 60_000 })],
  several: () => [outgoing(), outgoing()],
  ownId: () => [outgoing({ id: "mine", ownId: true })],
  strict: () => [outgoing({ key: "k", strict: true })],
  scheduled: () => [outgoing({ schedule: later })],
  scheduledOwnId: () => [outgoing({ id: "mine", ownId: true, schedule: later })],
  mixed: () => [outgoing({ id: "mine", ownId: true }), outgoing({ schedule: later })],
};

test.each(["force_custom_plan", "force_generic_plan"])(
  "A1: with %s a write that arrives outside every transaction writes nothing, draws no seq, and says so",
  async (mode) => {
    const house = await relays();
    const session = await house.database.session("test", { plan_cache_mode: mode });
    const outside: Queryable = { borrowed: true, run: (sql, params) => session.run(sql, params) };
    for (const [way, messages] of Object.entries(ways)) {
      for (const _ of [1, 2]) {
        const writing = house.writer.write(outside, messages());
        await expect(writing, way).rejects.toMatchObject({ code: "NOT_IN_TRANSACTION" });
      }
    }
    for (const messages of [ways["usual"], ways["one"], ways["several"]]) {
      const writing = house.writer.writeLeased(outside, messages?.() ?? [], 1_000);
      await expect(writing).rejects.toMatchObject({ code: "NOT_IN_TRANSACTION" });
    }
    session.release();
    const left = await house.rows(
      `select (select count(*)::int from sagabox.message) as messages, (select count(*)::int from sagabox.outbox) as waiting,
              (select count(*)::int from sagabox.scheduled) as scheduled, (select count(*)::int from sagabox.published_id) as ids,
              (select is_called from sagabox.outbox_seq) as drawn`,
    );
    expect(left).toEqual([{ messages: 0, waiting: 0, scheduled: 0, ids: 0, drawn: false }]);
    expect(house.observer.of("outbox.written")).toEqual([]);
  },
);

test.each([
  ["begin", 3],
  ["begin; create temp table note (n int)", 1],
])("A1: in somebody's transaction that began with %j a message takes %i trips", async (begin, trips) => {
  const house = await relays();
  const client = await house.pool.connect();
  for (const messages of [ways["usual"], ways["one"], ways["several"], ways["ownId"], ways["scheduled"]]) {
    await client.query(begin);
    const asked: string[] = [];
    const borrowed: Queryable = {
      borrowed: true,
      run: async ({ name, text }, params) => {
        asked.push(name);
        const { rows, rowCount, command } = await client.query(text, [...(params ?? [])]);
        return { rows, rowCount: rowCount ?? 0, command };
      },
    };
    await house.writer.write(borrowed, messages?.() ?? []);
    expect(asked).toHaveLength(trips);
    await client.query("rollback");
  }
  client.release();
});

test("A3: in somebody's transaction an id that was used before is told from a transaction that has ended", async () => {
  const house = await relays();
  await house.publish(outgoing({ id: "mine", ownId: true }));
  const client = await house.pool.connect();
  await client.query("begin");
  const borrowed: Queryable = {
    borrowed: true,
    run: async ({ text }, params) => {
      const { rows, rowCount, command } = await client.query(text, [...(params ?? [])]);
      return { rows, rowCount: rowCount ?? 0, command };
    },
  };
  for (const way of ["ownId", "scheduledOwnId"]) {
    expect(await house.writer.write(borrowed, ways[way]?.() ?? [])).toEqual(new Set());
  }
  await client.query("commit");
  client.release();
  expect(await house.rows("select id from sagabox.message")).toEqual([{ id: "mine" }]);
  expect(await house.rows("select id from sagabox.scheduled")).toEqual([]);
});
