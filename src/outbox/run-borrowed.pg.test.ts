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
  "A1: with %s a write that arrives outside every transaction writes nothing, draws no seq, and throws",
  async (mode) => {
    const harness = await relays();
    const session = await harness.database.session("test", { plan_cache_mode: mode });
    const outside: Queryable = { borrowed: true, run: (sql, params) => session.run(sql, params) };
    for (const [way, messages] of Object.entries(ways)) {
      for (const _ of [1, 2]) {
        const writing = harness.writer.write(outside, messages());
        await expect(writing, way).rejects.toMatchObject({ code: "NOT_IN_TRANSACTION" });
      }
    }
    for (const messages of [ways["usual"], ways["one"], ways["several"]]) {
      const writing = harness.writer.writeLeased(outside, messages?.() ?? [], 1_000);
      await expect(writing).rejects.toMatchObject({ code: "NOT_IN_TRANSACTION" });
    }
    session.release();
    const left = await harness.rows(
      `select (select count(*)::int from sagabox.message) as messages, (select count(*)::int from sagabox.outbox) as waiting,
              (select count(*)::int from sagabox.scheduled) as scheduled, (select count(*)::int from sagabox.published_id) as ids,
              (select is_called from sagabox.outbox_seq) as drawn`,
    );
    expect(left).toEqual([{ messages: 0, waiting: 0, scheduled: 0, ids: 0, drawn: false }]);
    expect(harness.observer.of("outbox.written")).toEqual([]);
  },
);

test.each([
  ["begin", 3],
  ["begin; create temp table note (n int)", 1],
])(
  "A1: in a transaction of the caller that began with %j a message takes %i round trips",
  async (begin, trips) => {
    const harness = await relays();
    const client = await harness.pool.connect();
    for (const messages of [ways["usual"], ways["one"], ways["several"], ways["ownId"], ways["scheduled"]]) {
      await client.query(begin);
      const ran: string[] = [];
      const borrowed: Queryable = {
        borrowed: true,
        run: async ({ name, text }, params) => {
          ran.push(name);
          const { rows, rowCount, command } = await client.query(text, [...(params ?? [])]);
          return { rows, rowCount: rowCount ?? 0, command };
        },
      };
      await harness.writer.write(borrowed, messages?.() ?? []);
      expect(ran).toHaveLength(trips);
      await client.query("rollback");
    }
    client.release();
  },
);

test("A3: in a transaction of the caller a duplicate id is distinguished from an ended transaction", async () => {
  const harness = await relays();
  await harness.publish(outgoing({ id: "mine", ownId: true }));
  const client = await harness.pool.connect();
  await client.query("begin");
  const borrowed: Queryable = {
    borrowed: true,
    run: async ({ text }, params) => {
      const { rows, rowCount, command } = await client.query(text, [...(params ?? [])]);
      return { rows, rowCount: rowCount ?? 0, command };
    },
  };
  for (const way of ["ownId", "scheduledOwnId"]) {
    expect(await harness.writer.write(borrowed, ways[way]?.() ?? [])).toEqual(new Set());
  }
  await client.query("commit");
  client.release();
  expect(await harness.rows("select id from sagabox.message")).toEqual([{ id: "mine" }]);
  expect(await harness.rows("select id from sagabox.scheduled")).toEqual([]);
});
