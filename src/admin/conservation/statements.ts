import { defineStatement } from "../../storage/index.ts";

/** Longer than any lease: the options allow one hour. */
const MAX_LEASE = "interval '1 hour 5 minutes'";
/** Other members remove an expired member within seconds; after this time its row is reported. */
const OVERLOOKED = "interval '2 minutes'";
const SAMPLE_ROWS = 200;
/** Milliseconds since the last pass. */
const SINCE_MS = "extract(epoch from clock_timestamp() - coalesce(checked_at, clock_timestamp())) * 1000";

/** SQL that checks the tables other than messages, one page at a time. `schema` must be quoted already. */
export function tableStatements(schema: string) {
  // `offset 0` keeps these subqueries from becoming joins, which would read the whole archive. Days that are about to be
  // dropped are left out, because their messages are invisible between detaching and dropping.
  const behind = (table: "outbox" | "queue") => `
              not exists (select 1 from ${schema}.message
                           where message.id = row.message_id and message.written_on = row.written_on offset 0)
                as orphan${table === "outbox" ? mismatch : ""}`;
  const mismatch = `,
              not row.again and exists (select 1 from ${schema}.message
                           where message.id = row.message_id and message.written_on = row.written_on
                             and (message.lane, message.seq) <> (row.lane, row.seq) and message.seq > 0 offset 0) as is_mismatch,
              row.due_at = 'infinity' and not exists (
                    select 1 from ${schema}.dead_letter as letter
                     where letter.message_id = row.message_id and letter.closed_at is null
                       and letter.held_lane = row.lane and letter.held_seq = row.seq offset 0) as is_stale_block`;
  return {
    outbox: defineStatement(
      "sagabox.conservation.outbox",
      `select row.lane, row.seq::text, row.message_id as id,
              row.lease_until > clock_timestamp() + ${MAX_LEASE} as overlong,${behind("outbox")}
         from ${schema}.outbox as row
        where (row.lane, row.seq) > ($1::integer, $2::text::bigint) and row.written_on >= $4::text::date
        order by row.lane, row.seq
        limit $3::integer`,
    ),
    queue: defineStatement(
      "sagabox.conservation.queue",
      `select row.lane, row.seq::text, row.message_id as id,
              not exists (select 1 from ${schema}.consumer_group where id = row.lane / 256) as has_no_group,${behind("queue")}
         from ${schema}.queue as row
        where (row.lane, row.seq) > ($1::integer, $2::text::bigint) and row.written_on >= $4::text::date
        order by row.lane, row.seq
        limit $3::integer`,
    ),
    scheduled: defineStatement(
      "sagabox.conservation.scheduled",
      `select scheduled.id, scheduled.lane::integer as lane,
              exists (select 1 from ${schema}.message where message.id = scheduled.id offset 0) as written
         from ${schema}.scheduled
        where scheduled.id > $1::text
        order by scheduled.id
        limit $2::integer`,
    ),
    // A replayed command must be waiting, handled or dead-lettered again. Only commands are checked, because an ignored event
    // leaves no trace.
    letters: defineStatement(
      "sagabox.conservation.letters",
      `select letter.id::text as letter, letter.message_id as id, letter.held_lane as lane,
              case when letter.origin = 'consumer' then coalesce(letter.closed_as, 'open') end as of_consumer,
              letter.closed_at is null and letter.held_lane is not null and not exists (
                select 1 from ${schema}.outbox as row
                 where row.lane = letter.held_lane and row.seq = letter.held_seq and row.due_at = 'infinity' offset 0) as lacks_row,
              letter.closed_as = 'replayed' and letter.origin = 'consumer' and letter.kind = 'command'
                and not exists (select 1 from ${schema}.consumer_inbox as inbox
                                 where inbox.consumer_name = letter.consumer and inbox.event_id = letter.message_id offset 0)
                and not exists (select 1 from ${schema}.dead_letter as later
                                 where later.message_id = letter.message_id and later.consumer = letter.consumer
                                   and later.id > letter.id offset 0)
                and not exists (select 1 from ${schema}.consumer_group as known
                                  join ${schema}.queue as row on row.lane between known.id * 256 and known.id * 256 + 255
                                   and row.message_id = letter.message_id
                                 where known.name = letter.consumer offset 0) as vanished
         from ${schema}.dead_letter as letter
        where letter.id > $1::text::bigint
        order by letter.id
        limit $2::integer`,
    ),
    // Updates move rows between pages, so one round sees most rows and later rounds the rest.
    inbox: defineStatement(
      "sagabox.conservation.inbox",
      `select count(*)::integer as rows,
              coalesce(json_agg(json_build_object('consumer', row.consumer_name, 'id', row.event_id)) filter (where row.undone_by is not null
                and not exists (select 1 from ${schema}.consumer_inbox as undo
                                 where undo.consumer_name = row.consumer_name and undo.event_id = row.undone_by offset 0)), '[]')::text as undone,
              coalesce(json_agg(json_build_object('consumer', row.consumer_name, 'id', row.event_id)) filter (where row.effect_of is not null
                and exists (select 1 from ${schema}.consumer_inbox as origin
                             where origin.consumer_name = row.consumer_name and origin.event_id = row.effect_of
                               and not origin.effect offset 0)), '[]')::text as borrowed
         from ${schema}.consumer_inbox as row
        where row.ctid >= $1::text::tid and row.ctid < $2::text::tid`,
    ),
    inboxPages: defineStatement(
      "sagabox.conservation.inbox_pages",
      `select (pg_relation_size(($1::text || '.consumer_inbox')::regclass) / current_setting('block_size')::bigint)::integer
                as pages`,
    ),
    // Live members remove expired ones many times a minute, so an expired member is reported only if a live one exists.
    leases: defineStatement(
      "sagabox.conservation.leases",
      `with clock as materialized (select clock_timestamp() as now)
       select 'lease_overlong' as kind, member.id
         from clock, ${schema}.member where member.lease_until > clock.now + ${MAX_LEASE}
       union all
       select 'lease_over', gone.id
         from clock, ${schema}.member as gone
        where gone.scope >= 0 and gone.lease_until < clock.now - ${OVERLOOKED}
          and exists (select 1 from ${schema}.member as peer
                       where peer.scope = gone.scope and peer.joined_at < clock.now - ${OVERLOOKED}
                         and peer.lease_until > clock.now)
       limit ${SAMPLE_ROWS}`,
    ),
    sagas: defineStatement(
      "sagabox.conservation.sagas",
      `(select 'saga_without_incident' as kind, instance.id
          from ${schema}.saga_instance as instance
         where instance.completed_at is null and instance.status = 'failed'
           and not exists (select 1 from ${schema}.saga_incident as incident
                            where incident.saga_id = instance.id and incident.closed_at is null)
         limit ${SAMPLE_ROWS})
       union all
       (select 'incident_without_saga', incident.saga_id
          from ${schema}.saga_incident as incident
         where incident.closed_at is null
           and not exists (select 1 from ${schema}.saga_instance as instance
                            where instance.id = incident.saga_id and instance.status = 'failed')
         limit ${SAMPLE_ROWS})
       union all
       (select 'claim_overlong', instance.id
          from ${schema}.saga_instance as instance
         where instance.due_at is not null
           and instance.claimed_until > (select clock_timestamp()) + ${MAX_LEASE}
         order by instance.due_at
         limit ${SAMPLE_ROWS})`,
    ),
    // Bounds the cost of a check: short timeouts, read-only, and no sequential scans.
    limits: defineStatement(
      "sagabox.conservation.limits",
      `select set_config('statement_timeout', $1::text, true), set_config('lock_timeout', '250ms', true),
              set_config('transaction_read_only', 'on', true), set_config('enable_seqscan', 'off', true)`,
    ),
    kept: defineStatement(
      "sagabox.conservation.kept",
      `select dead_letter_ms, archive_ms, state::text as state,
              to_char(checked_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as checked_at
         from ${schema}.conservation`,
    ),
    today: defineStatement(
      "sagabox.conservation.today",
      `select to_char((clock_timestamp() - $1::double precision * interval '1 ms') at time zone 'utc', 'YYYY-MM-DD') as day`,
    ),
    // A longer retention applies only to newer rows, so the checkable period grows by one day per day.
    claim: defineStatement(
      "sagabox.conservation.claim",
      `update ${schema}.conservation
          set claimed_by = $1::text, claimed_until = clock_timestamp() + $2::double precision * interval '1 ms',
              dead_letter_ms = least($3::double precision, dead_letter_ms + ${SINCE_MS}),
              archive_ms = least($4::double precision, archive_ms + ${SINCE_MS})
        where claimed_until is null or claimed_until < clock_timestamp() or claimed_by = $1::text
       returning state::text as state, dead_letter_ms, archive_ms`,
    ),
    // A process with a shorter retention stores it, also without having the claim.
    shorten: defineStatement(
      "sagabox.conservation.shorten",
      `update ${schema}.conservation
          set dead_letter_ms = least(dead_letter_ms, $1::double precision),
              archive_ms = least(archive_ms, $2::double precision)
        where dead_letter_ms > $1::double precision or archive_ms > $2::double precision`,
    ),
    save: defineStatement(
      "sagabox.conservation.save",
      `update ${schema}.conservation set state = $2::text::json, checked_at = clock_timestamp()
        where claimed_by = $1::text`,
    ),
    release: defineStatement(
      "sagabox.conservation.release",
      `update ${schema}.conservation set claimed_by = null, claimed_until = null where claimed_by = $1::text`,
    ),
  };
}
