import { lettersWhere, type Condition } from "../../dead-letter/index.ts";
import { statement } from "../../storage/index.ts";

const utc = (time: string): string => `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

/** SQL of grouping, replaying, editing and burying. `schema` is quoted already. */
export function letterStatements(schema: string) {
  // Letters and deliveries of one key are one line; where there is no key there is no order to keep.
  const sameKey = (other: string): string =>
    `hashtextextended(${other}.key, 0) = hashtextextended(letter.key, 0) and ${other}.key = letter.key
              and ${other}.topic = letter.topic and ${other}.origin = letter.origin
              and ${other}.consumer is not distinct from letter.consumer`;
  const earlierDead = `exists (
             select 1 from ${schema}.dead_letter as earlier
              where letter.key is not null and earlier.closed_at is null and earlier.key is not null
                and ${sameKey("earlier")}
                and (earlier.written_at, earlier.message_id) < (letter.written_at, letter.message_id))`;
  return {
    // ── groups ──
    unnamed: statement(
      "sagabox.letters.unnamed",
      `select id::text, consumer, type, reason, error_type, error_message
         from ${schema}.dead_letter
        where fingerprint is null and closed_at is null
        order by written_at, id
        limit $1::integer`,
    ),
    name: statement(
      "sagabox.letters.name",
      `update ${schema}.dead_letter as letter
          set fingerprint = given.fingerprint
         from unnest($1::text::bigint[], $2::text::text[]) as given (id, fingerprint)
        where letter.id = given.id and letter.fingerprint is null`,
    ),
    // Everything of a group is one cause, so any of its letters shows whose and what it is; the newest is the freshest.
    groups: (names: readonly Condition[]) =>
      statement(
        "sagabox.letters.groups",
        `with counted as materialized (
           select letter.fingerprint, count(*)::integer as open, min(letter.failed_at) as first_at,
                  max(letter.failed_at) as last_at, max(letter.id) as sample
             from ${schema}.dead_letter as letter
            where letter.closed_at is null and letter.fingerprint is not null
              and ${lettersWhere(names, 3)}
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
    newest: statement(
      "sagabox.letters.newest",
      `select coalesce(max(id), 0)::text as id from ${schema}.dead_letter`,
    ),
    // Whether anybody works on the lines these letters go back to. Scope 0 is the outbox.
    workers: statement(
      "sagabox.letters.workers",
      `select asked.name as consumer, known.id is not null as known,
              exists (select 1 from ${schema}.member
                       where member.scope = known.id and member.lease_until > clock_timestamp()) as working
         from unnest($1::text::text[]) as asked (name)
         left join (select id, name from ${schema}.consumer_group union all select 0, null) as known
           on known.name is not distinct from asked.name`,
    ),
    // ── replay ──
    // The next letters of a cause in the order of their messages. One whose key has an earlier letter waits for that.
    page: (names: readonly Condition[]) =>
      statement(
        "sagabox.letters.page",
        `select letter.id::text, letter.message_id, letter.topic, letter.key, ${utc("letter.written_at")} as written_at
           from ${schema}.dead_letter as letter
          where letter.closed_at is null and letter.fingerprint = $1::text and letter.id <= $2::text::bigint
            and (letter.written_at, letter.id) > ($3::text::timestamptz, $4::text::bigint)
            and not ${earlierDead}
            and ${lettersWhere(names, 6)}
          order by letter.written_at, letter.id
          limit $5::integer`,
      ),
    // Closes those that may go, in one look at everything: none whose key has an earlier dead letter, or a replayed one
    // that is still on its way. What another operator has in hand is passed over.
    closeInOrder: statement(
      "sagabox.letters.close_in_order",
      `with given as materialized (
         select * from unnest($1::text::bigint[], $2::text::integer[], $3::text::bigint[]) as given (id, lane, stream)
       ), free as materialized (
         select letter.id, given.lane, given.stream
           from given
           join ${schema}.dead_letter as letter on letter.id = given.id
           left join ${schema}.consumer_group as reader on reader.name = letter.consumer
          where letter.closed_at is null
            and not ${earlierDead}
            and not exists (
              select 1 from ${schema}.queue as moving
               where given.stream is not null and letter.origin = 'consumer'
                 and moving.lane = reader.id * 256 + given.lane and moving.stream = given.stream
                 and exists (select 1 from ${schema}.dead_letter as sent
                              where sent.message_id = moving.message_id and sent.consumer = letter.consumer
                                and sent.closed_as = 'replayed'))
            and not exists (
              select 1 from ${schema}.outbox as moving
               where given.stream is not null and letter.origin = 'outbox' and moving.again
                 and moving.due_at < 'infinity' and moving.lane = given.lane and moving.stream = given.stream)
          order by letter.id
            for update of letter skip locked
       )
       update ${schema}.dead_letter as letter
          set closed_at = clock_timestamp(), closed_as = 'replayed'
         from free
        where letter.id = free.id
       returning letter.id::text, letter.origin, letter.consumer, letter.message_id, letter.type, letter.topic,
                 letter.reason, letter.attempts, letter.error_message, letter.traceparent, letter.fingerprint,
                 letter.held_lane, letter.held_seq::text, free.lane, free.stream::text`,
    ),
    rearm: statement(
      "sagabox.letters.rearm",
      `select id::text from unnest($1::text::bigint[]) as id where ${schema}.dead_letter_rearm(id)`,
    ),
    keep: statement(
      "sagabox.letters.keep",
      `select given.id::text, ${schema}.dead_letter_keep_message(given.id, given.lane)::text as written_on
         from unnest($1::text::bigint[], $2::text::smallint[]) as given (id, lane)`,
    ),
    deliver: statement(
      "sagabox.letters.deliver",
      `insert into ${schema}.queue
         (lane, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at, expires_at)
       select reader.id * 256 + given.lane, given.stream, letter.topic, letter.type, letter.message_id,
              given.written_on, letter.priority, 0, letter.max_attempts, clock_timestamp(),
              case when letter.expires_at > clock_timestamp() then letter.expires_at end
         from unnest($1::text::bigint[], $2::text::integer[], $3::text::bigint[], $4::text::date[])
              as given (id, lane, stream, written_on)
         join ${schema}.dead_letter as letter on letter.id = given.id
         join ${schema}.consumer_group as reader on reader.name = letter.consumer
        order by letter.written_at, letter.id
       returning message_id, lane, seq::text`,
    ),
    // The letters were closed by an earlier statement of this transaction, so its xid is older than the seqs drawn here.
    send: statement(
      "sagabox.letters.send",
      `insert into ${schema}.outbox
         (again, lane, seq, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at, expires_at)
       select true, sorted.lane, nextval('${schema}.outbox_seq'), sorted.stream, sorted.topic, sorted.type,
              sorted.message_id, sorted.written_on, sorted.priority, 0, sorted.max_attempts, clock_timestamp(),
              case when sorted.expires_at > clock_timestamp() then sorted.expires_at end
         from (select given.lane, given.stream, given.written_on, letter.topic, letter.type, letter.message_id,
                      letter.priority, letter.max_attempts, letter.expires_at
                 from unnest($1::text::bigint[], $2::text::integer[], $3::text::bigint[], $4::text::date[])
                      as given (id, lane, stream, written_on)
                 join ${schema}.dead_letter as letter on letter.id = given.id
                order by letter.written_at, letter.id) as sorted
       returning message_id, lane, seq::text`,
    ),
    // Where replayed letters are now: still in line, dead again, or neither and so handled. One look at everything, since
    // a row leaves its line in the transaction that writes its letter.
    outcomes: statement(
      "sagabox.letters.outcomes",
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
      statement(
        "sagabox.letters.held",
        `select count(*)::integer as count
           from (select 1 from ${schema}.dead_letter as letter
                  where letter.closed_at is null and letter.fingerprint = $1::text and letter.id <= $2::text::bigint
                    and ${lettersWhere(names, 3)}
                  limit 100000) as left_over`,
      ),
    // ── discard ──
    discard: (names: readonly Condition[]) =>
      statement(
        "sagabox.letters.discard",
        `with picked as materialized (
           select letter.id from ${schema}.dead_letter as letter
            where letter.closed_at is null and letter.id <= $1::text::bigint
              and ${lettersWhere(names, 3)}
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
    freeKeys: statement(
      "sagabox.letters.free_keys",
      `select ${schema}.dead_letter_free_key(id) from unnest($1::text::bigint[]) as id`,
    ),
    // ── one letter ──
    others: statement(
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
    actions: statement(
      "sagabox.letters.actions",
      `select ${utc("log.at")} as at, log.actor, log.action, log.reason, log.outcome, log.target_id
         from ${schema}.audit_log as log
        where log.target_kind = 'dead_letter' and log.target_id = any($1::text::text[])
        order by log.at
        limit 100`,
    ),
    // ── what lives ──
    waiting: statement(
      "sagabox.letters.waiting",
      `select 'outbox' as line, moving.lane, moving.seq::text, null::text as consumer, moving.type, moving.attempts
         from ${schema}.outbox as moving
        where moving.due_at < 'infinity' and ((moving.again and moving.message_id = $1::text)
           or (moving.lane, moving.seq) in (select message.lane, message.seq from ${schema}.message where message.id = $1::text))
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
    buryDelivery: statement(
      "sagabox.letters.bury_delivery",
      `select ${schema}.dead_letter_bury_delivery($1::integer, $2::text::bigint, $3::text, $4::text, $5::text)::text as letter`,
    ),
    buryWaiting: statement(
      "sagabox.letters.bury_waiting",
      `select ${schema}.dead_letter_bury_waiting($1::integer, $2::text::bigint, $3::text, $4::text, $5::text)::text as letter`,
    ),
  };
}

export type LetterStatements = ReturnType<typeof letterStatements>;
