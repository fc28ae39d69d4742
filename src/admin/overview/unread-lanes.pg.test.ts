import { createBus, event } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { pgDatabase } from "../../storage/index.ts";
import { examine } from "../doctor/examine.ts";
import { readOverview } from "./overview.ts";
import { overviewStatements } from "./statements.ts";

const Placed = event("order.placed", { schema: z.object({ id: z.string() }), key: ({ id }) => id });

/** Two orders of different lanes have waited for five minutes, and a worker has owned all lanes for an hour. */
async function setup() {
  const { pool } = await temporaryDatabase();
  const bus = createBus({ service: "shop", database: pool, log: false, outbox: { optimistic: false } });
  onTestFinished(async () => void (await bus.stop()));
  await bus.migrate();
  await bus.transaction((tx) => tx.publish(Placed, { id: "late" }));
  await bus.transaction((tx) => tx.publish(Placed, { id: "later" }));
  // Without triggers, because the guard of the outbox refuses a change of time without a failure.
  await pool.query(
    "begin; set local session_replication_role = replica; update sagabox.outbox set due_at = due_at - interval '5 minutes'; commit",
  );
  const own = async (scope: number): Promise<void> => {
    const member = `member-${scope}`;
    await pool.query(
      "insert into sagabox.member (id, scope, worker, lease_until) values ($1, $2, 'w1', now() + interval '1 hour')",
      [member, scope],
    );
    await pool.query(
      `insert into sagabox.relay_lane (lane, scope, owner, token, leased_at)
       select $1 * 256 + lane, $1, $2, 'token', now() - interval '1 hour' from generate_series(0, 255) as lane
       on conflict (lane) do update set owner = excluded.owner, token = excluded.token, leased_at = excluded.leased_at`,
      [scope, member],
    );
  };
  await own(0);
  const { rows } = await pool.query<{ lane: number; id: string }>(
    "select lane, message_id as id from sagabox.outbox order by seq",
  );
  const [late, later] = rows as [{ lane: number; id: string }, { lane: number; id: string }];
  expect(later.lane).not.toBe(late.lane);
  const database = pgDatabase(pool);
  const seen = async () => (await readOverview(database, "sagabox")).unreadLanes;
  return { pool, database, own, late, later, seen };
}

test("a lane is owned and not read when later messages of its topic were sent and it stands still", async () => {
  const { pool, database, late, later, seen } = await setup();
  expect(await seen()).toEqual([]); // the destination may rest: nothing of the topic was sent
  await pool.query("delete from sagabox.outbox where message_id = $1", [later.id]);
  expect(await seen()).toMatchObject([{ lane: late.lane, worker: "w1", consumer: null }]);
  const { findings } = await examine(database, "sagabox");
  expect(findings.filter(({ check }) => check === "lanes")).toMatchObject([
    { severity: "problem", fix: "Restart worker w1; the others take its lanes over." },
  ]);
  await pool.query(
    `insert into sagabox.receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on)
     values ($1, 1, 1, '{1}', 'w1', now(), (now() at time zone 'utc')::date)`,
    [late.lane],
  );
  expect(await seen()).toEqual([]); // it is behind, and gets on
});

test("a lane whose key is held, or that was only just taken over, is not accused", async () => {
  const { pool, late, later, seen } = await setup();
  await pool.query("delete from sagabox.outbox where message_id = $1", [later.id]);
  await pool.query("update sagabox.relay_lane set leased_at = now() where lane = $1", [late.lane]);
  expect(await seen()).toEqual([]);
  await pool.query("update sagabox.relay_lane set leased_at = now() - interval '1 hour'");
  expect(await seen()).toHaveLength(1);
  await pool.query("update sagabox.outbox set due_at = 'infinity'");
  expect(await seen()).toEqual([]);
});

test("a lane of a consumer is not read when the consumer has handled later messages and none of the lane", async () => {
  const { pool, own, late, later, seen } = await setup();
  const { rows } = await pool.query<{ id: number }>(
    "insert into sagabox.consumer_group (name) values ('mail') returning id",
  );
  const group = rows[0]?.id ?? 0;
  await own(group);
  await pool.query(
    `insert into sagabox.queue (lane, topic, type, message_id, written_on, due_at)
     select $1 * 256 + lane, topic, type, message_id, written_on, due_at from sagabox.outbox where message_id = $2`,
    [group, late.id],
  );
  await pool.query("delete from sagabox.outbox");
  expect(await seen()).toEqual([]);
  const handled = (id: string) =>
    pool.query(
      `insert into sagabox.consumer_inbox (consumer_name, event_id, source_topic, event_type)
       values ('mail', $1, 'order.placed', 'order.placed')`,
      [id],
    );
  await handled(later.id);
  expect(await seen()).toMatchObject([{ lane: group * 256 + late.lane, worker: "w1", consumer: "mail" }]);
  await handled(late.id); // something of this lane was handled lately
  expect(await seen()).toEqual([]);
});

test("the look for lanes that nobody reads goes by index, however much waits", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  for (const [table, lane] of [
    ["outbox", "n % 256"],
    ["queue", "256 + n % 512"],
  ]) {
    await pool.query(
      `insert into sagabox.${table} (lane, seq, topic, type, message_id, written_on, due_at)
       select ${lane}, n, 't', 'x', 'm' || n, current_date, now() from generate_series(1, 20000) as n`,
    );
  }
  await pool.query("vacuum analyze sagabox.outbox, sagabox.queue, sagabox.relay_lane");
  const { rows } = await pool.query<{ "QUERY PLAN": string }>(
    `explain ${overviewStatements("sagabox").unread.text}`,
  );
  const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
  expect(plan).toMatch(/Index Scan using outbox_pkey/);
  expect(plan).toMatch(/Index Scan using queue_pkey/);
  expect(plan).not.toMatch(/Seq Scan on (outbox|queue)/);
});
