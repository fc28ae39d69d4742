import { expect, test } from "vitest";
import { outboxDatabase } from "../../../test/support/relays.ts";
import { ensurePartitions, History } from "../../outbox/index.ts";
import { verifyConservation } from "./verify.ts";

/** Six messages: m-1 to m-4 were sent, m-5 waits, m-6 is dead; and a consumer group with one delivery. */
async function setup() {
  const parts = await outboxDatabase();
  const { rows, write, database } = parts;
  for (const n of [1, 2, 3, 4, 5, 6]) await write({ message: { id: `m-${n}`, key: `k-${n}` } });
  await rows(`insert into sagabox.receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs)
              select lane, seq, seq, array[seq], 'r', clock_timestamp(), written_on, '{}' from sagabox.message
               where id <= 'm-4'`);
  await rows("delete from sagabox.outbox where message_id <= 'm-4' or message_id = 'm-6'");
  await rows(`insert into sagabox.dead_letter
                (origin, message_id, kind, type, schema_version, topic, correlation_id, traceparent, source, priority,
                 max_attempts, headers, data, written_at, reason, attempts, error_type, error_message)
              select 'outbox', id, kind, type, schema_version, topic, correlation_id, traceparent, source, priority,
                     max_attempts, headers, data, written_at, 'rejected', 1, 'E', 'e' from sagabox.message where id = 'm-6'`);
  await rows("insert into sagabox.consumer_group (name) values ('billing')");
  await rows(`insert into sagabox.queue (lane, topic, type, message_id, written_on, due_at)
              select 256 + lane, topic, type, id, written_on, clock_timestamp() from sagabox.message where id = 'm-1'`);
  const found = async () => {
    const { findings, total } = await verifyConservation(database, "sagabox");
    return { kinds: findings.map(({ kind, ids }) => [kind, ...ids]), total };
  };
  return { ...parts, found };
}

const row = (id: string) => `(select lane, seq, written_on from sagabox.message where id = '${id}')`;
const letter = `insert into sagabox.dead_letter
  (origin, consumer, message_id, kind, type, schema_version, topic, correlation_id, traceparent, source, priority, max_attempts,
   headers, data, written_at, reason, attempts, error_type, error_message`;

test("DESIGN 7C: written = sent + waiting + dead where all is well, lane by lane", async () => {
  const { found, database } = await setup();
  expect(await found()).toEqual({
    kinds: [],
    total: { written: 6, sent: 4, waiting: 1, dead: 1, discarded: 0, unjudged: 0, lost: 0 },
  });
  const { lanes } = await verifyConservation(database, "sagabox");
  for (const lane of lanes) expect(lane.written).toBe(lane.sent + lane.waiting + lane.dead);
});

test.each<[string, string, readonly string[]]>([
  [
    "a waiting row is deleted",
    "delete from sagabox.outbox where message_id = 'm-5'",
    ["message_lost", "m-5"],
  ],
  [
    "a receipt is deleted",
    `delete from sagabox.receipt using ${row("m-2")} as m where receipt.first_seq = m.seq`,
    ["message_lost", "m-2"],
  ],
  ["a dead letter is deleted", "delete from sagabox.dead_letter", ["message_lost", "m-6"]],
  [
    "a sent message waits as well",
    `insert into sagabox.outbox (lane, seq, topic, type, message_id, written_on, due_at)
     select lane, seq, 't', 't', 'm-2', written_on, clock_timestamp() from ${row("m-2")} as m`,
    ["sent_and_waiting", "m-2"],
  ],
  [
    "a receipt is written twice",
    "insert into sagabox.receipt select * from sagabox.receipt where first_seq = (select seq from sagabox.message where id = 'm-2')",
    ["sent_twice", "m-2"],
  ],
  [
    "a dead message waits as well",
    `insert into sagabox.outbox (lane, seq, topic, type, message_id, written_on, due_at)
     select lane, seq, 't', 't', 'm-6', written_on, clock_timestamp() from ${row("m-6")} as m`,
    ["dead_and_waiting", "m-6"],
  ],
  [
    "a letter is closed as replayed, and nothing else",
    "update sagabox.dead_letter set closed_at = clock_timestamp(), closed_as = 'replayed'",
    ["replay_lost", "m-6"],
  ],
  [
    "a row waits under a number of its own",
    `insert into sagabox.outbox (lane, seq, topic, type, message_id, written_on, due_at)
     select lane, nextval('sagabox.outbox_seq'), 't', 't', 'm-3', written_on, clock_timestamp() from ${row("m-3")} as m`,
    ["row_mismatch", "m-3"],
  ],
  [
    "a delivery has no message",
    "update sagabox.queue set message_id = 'nobody'",
    ["row_without_message", "nobody"],
  ],
  ["a delivery has no group", "delete from sagabox.consumer_group", ["delivery_without_group", "m-1"]],
  [
    "a key is held by no letter",
    `insert into sagabox.outbox (lane, seq, topic, type, message_id, written_on, due_at, again)
     select lane, nextval('sagabox.outbox_seq'), 't', 't', 'm-3', written_on, 'infinity', true from ${row("m-3")} as m`,
    ["stale_key_block", "m-3"],
  ],
  [
    "a letter has lost its place",
    "update sagabox.dead_letter set held_lane = 3, held_seq = 99",
    ["blocking_row_missing", "m-6"],
  ],
  [
    "a replayed command of a consumer is nowhere",
    `${letter}, closed_at, closed_as) values ('consumer', 'billing', 'c-1', 'command', 't', 1, 't', 'c', 'p', 's', 5, 6,
      '{}', '{}', now(), 'rejected', 1, 'E', 'e', now(), 'replayed')`,
    ["replay_lost", "c-1"],
  ],
  [
    "an effect was taken back by nobody",
    `insert into sagabox.consumer_inbox (consumer_name, event_id, source_topic, event_type, undone_by)
     values ('billing', 'm-1', 't', 't', 'm-9')`,
    ["undo_unknown", "m-1"],
  ],
  [
    "a command stands on an effect that never was",
    `insert into sagabox.consumer_inbox (consumer_name, event_id, source_topic, event_type, effect, effect_of)
     values ('billing', 'm-1', 't', 't', false, null), ('billing', 'm-2', 't', 't', true, 'm-1')`,
    ["effect_unknown", "m-2"],
  ],
  [
    "a lease lasts for a day",
    "insert into sagabox.member (id, scope, worker, lease_until) values ('w/1', 0, 'w', now() + interval '1 day')",
    ["lease_overlong", "w/1"],
  ],
  [
    "a lease is long over though a peer is there",
    `insert into sagabox.member (id, scope, worker, joined_at, lease_until)
     values ('w/1', 0, 'w', now() - interval '1 hour', now() - interval '3 minutes'),
            ('w/2', 0, 'w', now() - interval '1 hour', now() + interval '20 seconds')`,
    ["lease_over", "w/1"],
  ],
  [
    "a scheduled message is in the archive already",
    `insert into sagabox.scheduled (id, due_at, lane, kind, type, schema_version, topic, correlation_id, traceparent, source,
       priority, max_attempts, data, written_at) values ('m-1', now(), 1, 'event', 't', 1, 't', 'c', 'p', 's', 5, 10, '{}', now())`,
    ["scheduled_and_written", "m-1"],
  ],
  [
    "a saga failed without an incident",
    `insert into sagabox.saga_instance (id, saga_type, definition_version, correlation_id, status, input, state, trace_id,
       traceparent, message_correlation_id) values ('s-1', 't', 1, 'k', 'failed', '{}', '{}', 't', 'p', 'c')`,
    ["saga_without_incident", "s-1"],
  ],
  [
    "an incident has no saga",
    "insert into sagabox.saga_incident (saga_id, steps, error) values ('s-2', '{a}', 'e')",
    ["incident_without_saga", "s-2"],
  ],
])("DESIGN 7C: damage is found, named, and nothing else: %s", async (_, damage, wanted) => {
  const { rows, found } = await setup();
  await rows(damage);
  expect((await found()).kinds).toEqual([wanted]);
});

test("DESIGN 7C: a message deleted from the archive is missed by its receipt", async () => {
  const { rows, found } = await setup();
  const [gone] = await rows<{ lane: number; seq: string }>(
    "delete from sagabox.message where id = 'm-2' returning lane, seq::text",
  );
  expect((await found()).kinds).toEqual([["message_unarchived", `${gone?.lane}/${gone?.seq}`]]);
});

test("DESIGN 7C: what was sent again has no message of its number, and that is no damage", async () => {
  const { rows, found } = await setup();
  await rows(`insert into sagabox.receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs, again_ids)
              select lane, 1000000, 1000000, '{1000000}', 'r', clock_timestamp(), written_on, '{1000000}', '{m-6}'
                from sagabox.message where id = 'm-6'`);
  await rows("update sagabox.dead_letter set closed_at = clock_timestamp(), closed_as = 'replayed'");
  expect(await found()).toMatchObject({ kinds: [], total: { sent: 5, dead: 0 } });
});

test("DESIGN 7C: what is carried forward from a day that goes is neither missed nor counted as lost", async () => {
  const { rows, database, observer, found } = await setup();
  await ensurePartitions(database, "sagabox");
  const old = "(clock_timestamp() at time zone 'utc')::date - 40";
  // m-1 was sent long ago and still waits for its consumer, m-5 still waits to be sent; receipts went with their day.
  await rows("alter table sagabox.outbox disable trigger outbox_legal_moves");
  for (const table of ["message", "outbox", "queue"])
    await rows(`update sagabox.${table} set written_on = ${old}`);
  await rows("update sagabox.message set written_at = written_at - interval '40 days'");
  await rows("alter table sagabox.outbox enable trigger outbox_legal_moves");
  await rows("delete from sagabox.receipt");
  const history = new History({ database, schema: "sagabox", retentionMs: 30 * 86_400_000, observer });
  expect(await history.tidy()).toBe(true);
  expect(await history.tidy()).toBe(true);
  expect(await rows("select id from sagabox.message order by id")).toEqual([{ id: "m-1" }, { id: "m-5" }]);
  expect((await found()).kinds).toEqual([]);
  await rows("delete from sagabox.queue");
  expect((await found()).kinds).toEqual([]);
});
