import { deadLettersWhere, type Condition } from "../../dead-letter/index.ts";
import { defineStatement } from "../../storage/index.ts";
import { replayStatements, utc } from "./replay-statements.ts";

/** SQL of grouping, replaying, editing and burying. `schema` is quoted already. */
export function deadLetterAdminStatements(schema: string) {
  return {
    // ── groups ──
    unnamed: defineStatement(
      "sagabox.letters.unnamed",
      `select id::text, consumer, type, reason, error_type, error_message
         from ${schema}.dead_letter
        where fingerprint is null and closed_at is null
        order by place, written_at, message_id
        limit $1::integer`,
    ),
    name: defineStatement(
      "sagabox.letters.name",
      `update ${schema}.dead_letter as letter
          set fingerprint = given.fingerprint,
              place = case when letter.place >= 0 then letter.place else coalesce(
                        (select min(message.seq) from ${schema}.message
                          where message.id = letter.message_id and message.seq > 0 and letter.key is not null), 0) end
         from unnest($1::text::bigint[], $2::text::text[]) as given (id, fingerprint)
        where letter.id = given.id and letter.fingerprint is null`,
    ),
    // Everything of a group is one cause, so any of its letters shows whose and what it is; the newest is the freshest.
    groups: (names: readonly Condition[]) =>
      defineStatement(
        "sagabox.letters.groups",
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
      "sagabox.letters.newest",
      `select coalesce(max(id), 0)::text as id from ${schema}.dead_letter`,
    ),
    // Whether anybody works on the lines these letters go back to. Scope 0 is the outbox.
    workers: defineStatement(
      "sagabox.letters.workers",
      `select asked.name as consumer, known.id is not null as known,
              exists (select 1 from ${schema}.member
                       where member.scope = known.id and member.lease_until > clock_timestamp()) as working
         from unnest($1::text::text[]) as asked (name)
         left join (select id, name from ${schema}.consumer_group union all select 0, null) as known
           on known.name is not distinct from asked.name`,
    ),
    ...replayStatements(schema),
    // ── discard ──
    discard: (names: readonly Condition[]) =>
      defineStatement(
        "sagabox.letters.discard",
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
    // What somebody else had locked was passed over, and may well stay open.
    leftOpen: (names: readonly Condition[]) =>
      defineStatement(
        "sagabox.letters.left_open",
        `select count(*)::integer as left_open
           from ${schema}.dead_letter as letter
          where letter.closed_at is null and letter.id <= $1::text::bigint
            and ${deadLettersWhere(names, 2)}`,
      ),
    freeKeys: defineStatement(
      "sagabox.letters.free_keys",
      `select ${schema}.dead_letter_free_key(id) from unnest($1::text::bigint[]) as id`,
    ),
    // ── one letter ──
    others: defineStatement(
      "sagabox.letters.others",
      `select letter.id::text, letter.reason, letter.error_type, left(letter.error_message, 500) as error_message,
              ${utc("letter.failed_at")} as failed_at, ${utc("letter.closed_at")} as closed_at, letter.closed_as,
              letter.fingerprint, ${utc("edit.edited_at")} as edited_at, edit.actor, edit.reason as why, edit.before_hash,
              edit.after_hash, edit.contract
         from ${schema}.dead_letter as letter
         left join ${schema}.dead_letter_edit as edit on edit.letter_id = letter.id
        where letter.message_id = $1::text and letter.origin = $2::text and letter.consumer is not distinct from $3::text
        order by letter.id
        limit 100`,
    ),
    actions: defineStatement(
      "sagabox.letters.actions",
      `select ${utc("log.at")} as at, log.actor, log.action, log.reason, log.outcome, log.target_id
         from ${schema}.audit_log as log
        where log.target_kind = 'dead_letter' and log.target_id = any($1::text::text[])
        order by log.at
        limit 100`,
    ),
    // ── what lives ──
    waiting: defineStatement(
      "sagabox.letters.waiting",
      `with place as materialized (
         select message.lane::integer as lane, message.seq from ${schema}.message where message.id = $1::text
         union
         select again.lane, again.seq from ${schema}.outbox as again where again.again and again.message_id = $1::text
       )
       select 'outbox' as line, moving.lane, moving.seq::text, null::text as consumer, moving.type, moving.attempts
         from place
         join ${schema}.outbox as moving on moving.lane = place.lane and moving.seq = place.seq
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
      "sagabox.letters.bury_delivery",
      `select ${schema}.dead_letter_bury_delivery($1::integer, $2::text::bigint, $3::text, $4::text, $5::text)::text as letter`,
    ),
    buryWaiting: defineStatement(
      "sagabox.letters.bury_waiting",
      `select ${schema}.dead_letter_bury_waiting($1::integer, $2::text::bigint, $3::text, $4::text, $5::text)::text as letter`,
    ),
  };
}

export type DeadLetterAdminStatements = ReturnType<typeof deadLetterAdminStatements>;
