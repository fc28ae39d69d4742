import { deadLettersWhere, type Condition } from "../../dead-letter/index.ts";
import { defineStatement } from "../../storage/index.ts";

const utc = (time: string): string => `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

/** SQL of the operator actions on dead letters. `schema` must be quoted already. */
export function deadLetterAdminStatements(schema: string) {
  return {
    // ── groups ──
    ungrouped: defineStatement(
      "sagabox.dead_letter_admin.ungrouped",
      `select id::text, consumer, type, reason, error_type, error_message
         from ${schema}.dead_letter
        where fingerprint is null and closed_at is null
        order by key_order, written_at, message_id
        limit $1::integer`,
    ),
    setFingerprints: defineStatement(
      "sagabox.dead_letter_admin.set_fingerprints",
      `update ${schema}.dead_letter as letter
          set fingerprint = given.fingerprint,
              key_order = case when letter.key_order >= 0 then letter.key_order else coalesce(
                        (select min(message.seq) from ${schema}.message
                          where message.id = letter.message_id and message.seq > 0 and letter.key is not null), 0) end
         from unnest($1::text::bigint[], $2::text::text[]) as given (id, fingerprint)
        where letter.id = given.id and letter.fingerprint is null`,
    ),
    // All dead letters of a group have one cause, so the newest one serves as the sample.
    groups: (names: readonly Condition[]) =>
      defineStatement(
        "sagabox.dead_letter_admin.groups",
        `with counted as materialized (
           select letter.fingerprint, count(*)::integer as open, min(letter.failed_at) as first_at,
                  max(letter.failed_at) as last_at, max(letter.id) as sample
             from ${schema}.dead_letter as letter
            where letter.closed_at is null and letter.fingerprint is not null
              and ${deadLettersWhere(names, 3)}
            group by letter.fingerprint
         )
         select counted.fingerprint, counted.open, ${utc("counted.first_at")} as first_at,
                ${utc("counted.last_at")} as last_at, letter.id::text as sample, letter.message_id, letter.origin,
                letter.consumer, letter.type, letter.topic, letter.reason, letter.error_type,
                left(letter.error_message, 500) as error_message, closed.replayed, closed.discarded,
                (select count(*)::integer from counted) as groups, (select coalesce(sum(open), 0)::integer from counted) as total
           from counted
           join ${schema}.dead_letter as letter on letter.id = counted.sample
          cross join lateral (
            select count(*) filter (where gone.closed_as = 'replayed')::integer as replayed,
                   count(*) filter (where gone.closed_as = 'discarded')::integer as discarded
              from ${schema}.dead_letter as gone
             where gone.fingerprint = counted.fingerprint and gone.closed_at is not null
          ) as closed
          order by counted.open desc, counted.fingerprint
          offset $2::integer
          limit $1::integer`,
      ),
    newest: defineStatement(
      "sagabox.dead_letter_admin.newest",
      `select coalesce(max(id), 0)::text as id from ${schema}.dead_letter`,
    ),
    // Whether a worker runs for each of these consumers. Scope 0 is the outbox.
    workers: defineStatement(
      "sagabox.dead_letter_admin.workers",
      `select asked.name as consumer, known.id is not null as known,
              exists (select 1 from ${schema}.member
                       where member.scope = known.id and member.lease_until > clock_timestamp()) as working
         from unnest($1::text::text[]) as asked (name)
         left join (select id, name from ${schema}.consumer_group union all select 0, null) as known
           on known.name is not distinct from asked.name`,
    ),
    // ── replay ──
    // State of replayed messages: still in the outbox or queue, dead-lettered again, or neither and therefore handled. It
    // must be one snapshot, because a row leaves its table in the transaction that writes the dead letter.
    outcomes: defineStatement(
      "sagabox.dead_letter_admin.outcomes",
      `select given.id::text, coalesce(delivery.seq, sending.seq) is not null as waiting,
              coalesce(delivery.attempts, sending.attempts, 0)::integer as attempts,
              coalesce(delivery.last_error, sending.last_error) as last_error,
              again.id::text as letter, again.fingerprint, again.consumer, again.type, again.reason, again.error_type,
              again.error_message
         from unnest($1::text::bigint[], $2::text::text[], $3::text::integer[], $4::text::bigint[])
              as given (id, line, lane, seq)
         join ${schema}.dead_letter as letter on letter.id = given.id
         left join ${schema}.queue as delivery
           on given.line = 'queue' and delivery.lane = given.lane and delivery.seq = given.seq
              and delivery.message_id = letter.message_id
         left join ${schema}.outbox as sending
           on given.line = 'outbox' and sending.lane = given.lane and sending.seq = given.seq
              and sending.message_id = letter.message_id
         left join lateral (
           select * from ${schema}.dead_letter as next
            where next.message_id = letter.message_id and next.origin = letter.origin
              and next.consumer is not distinct from letter.consumer and next.id > letter.id
            order by next.id limit 1
         ) as again on true`,
    ),
    held: (names: readonly Condition[]) =>
      defineStatement(
        "sagabox.dead_letter_admin.held",
        `select count(*)::integer as count
           from (select 1 from ${schema}.dead_letter as letter
                  where letter.closed_at is null and letter.fingerprint = $1::text and letter.id <= $2::text::bigint
                    and ${deadLettersWhere(names, 3)}
                  limit 100000) as left_over`,
      ),
    // ── discard ──
    discard: (names: readonly Condition[]) =>
      defineStatement(
        "sagabox.dead_letter_admin.discard",
        `with picked as materialized (
           select letter.id from ${schema}.dead_letter as letter
            where letter.closed_at is null and letter.id <= $1::text::bigint
              and ${deadLettersWhere(names, 3)}
            order by letter.id
            limit $2::integer
              for update skip locked
         )
         update ${schema}.dead_letter as letter
            set closed_at = clock_timestamp(), closed_as = 'discarded'
           from picked
          where letter.id = picked.id
         returning letter.id::text, letter.origin, letter.consumer, letter.message_id, letter.type, letter.topic,
                   letter.reason, letter.attempts, letter.error_message, letter.traceparent, letter.fingerprint,
                   letter.held_lane, letter.held_seq::text`,
      ),
    // Rows that another operator had locked were skipped and may stay open.
    leftOpen: (names: readonly Condition[]) =>
      defineStatement(
        "sagabox.dead_letter_admin.left_open",
        `select count(*)::integer as left_open
           from ${schema}.dead_letter as letter
          where letter.closed_at is null and letter.id <= $1::text::bigint
            and ${deadLettersWhere(names, 2)}`,
      ),
    // ── one dead letter ──
    others: defineStatement(
      "sagabox.dead_letter_admin.others",
      `select letter.id::text, letter.reason, letter.error_type, left(letter.error_message, 500) as error_message,
              ${utc("letter.failed_at")} as failed_at, ${utc("letter.closed_at")} as closed_at, letter.closed_as,
              letter.fingerprint, ${utc("edit.edited_at")} as edited_at, edit.actor, edit.reason as why, edit.before_hash,
              edit.after_hash, edit.contract
         from ${schema}.dead_letter as letter
         left join ${schema}.dead_letter_edit as edit on edit.dead_letter_id = letter.id
        where letter.message_id = $1::text and letter.origin = $2::text and letter.consumer is not distinct from $3::text
        order by letter.id
        limit 100`,
    ),
    actions: defineStatement(
      "sagabox.dead_letter_admin.actions",
      `select ${utc("log.timestamp")} as at, log.actor, log.action, log.reason, log.outcome, log.target_id
         from ${schema}.audit_log as log
        where log.target_kind = 'dead_letter' and log.target_id = any($1::text::text[])
        order by log.timestamp
        limit 100`,
    ),
    // ── waiting messages ──
    waiting: defineStatement(
      "sagabox.dead_letter_admin.waiting",
      `with found as materialized (
         select message.lane::integer as lane, message.seq from ${schema}.message where message.id = $1::text
         union
         select again.lane, again.seq from ${schema}.outbox as again where again.again and again.message_id = $1::text
       )
       select 'outbox' as "table", moving.lane, moving.seq::text, null::text as consumer, moving.type, moving.attempts
         from found
         join ${schema}.outbox as moving on moving.lane = found.lane and moving.seq = found.seq
        where moving.message_id = $1::text and moving.due_at < 'infinity'
       union all
       select 'queue', moving.lane, moving.seq::text, reader.name, moving.type, moving.attempts
         from ${schema}.queue as moving
         join ${schema}.consumer_group as reader on reader.id = moving.lane / 256
        where moving.message_id = $1::text
          and moving.lane = any(array(
                select known.id * 256 + message.lane from ${schema}.consumer_group as known, ${schema}.message
                 where message.id = $1::text))
        order by 1, 4`,
    ),
    buryDelivery: defineStatement(
      "sagabox.dead_letter_admin.bury_delivery",
      `select ${schema}.dead_letter_bury_delivery($1::integer, $2::text::bigint, $3::text, $4::text, $5::text)::text as letter`,
    ),
    buryWaiting: defineStatement(
      "sagabox.dead_letter_admin.bury_waiting",
      `select ${schema}.dead_letter_bury_waiting($1::integer, $2::text::bigint, $3::text, $4::text, $5::text)::text as letter`,
    ),
  };
}

export type DeadLetterAdminStatements = ReturnType<typeof deadLetterAdminStatements>;
