import { deadLettersWhere, type Condition } from "../../dead-letter/index.ts";
import { defineStatement } from "../../storage/index.ts";

export const utc = (time: string): string =>
  `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

/** SQL of the staged replay. `schema` is quoted already. */
export function replayStatements(schema: string) {
  // Letters and deliveries of one key are one line; where there is no key there is no order to keep.
  const sameKey = (other: string): string =>
    `hashtextextended(${other}.key, 0) = hashtextextended(letter.key, 0) and ${other}.key = letter.key
              and ${other}.topic = letter.topic and ${other}.origin = letter.origin
              and ${other}.consumer is not distinct from letter.consumer`;
  const place = (of: string): string => `${of}.place, ${of}.written_at, ${of}.message_id`;
  const line = `(partition by letter.origin, letter.consumer, letter.topic, letter.key order by ${place("letter")})`;
  // Which of the letters in `from` must wait: whose key has a dead letter that is earlier and not among them, and whoever
  // comes behind such a one. What keeps its own place in the outbox may only be the first of its key: the others get
  // new places, behind it.
  const judgeSql = (from: string): string => `lined as materialized (
         select letter.*, lag(letter.place, 1, -2::bigint) over ${line} as after_place,
                lag(letter.written_at, 1, '-infinity'::timestamptz) over ${line} as after_at,
                lag(letter.message_id, 1, ''::text) over ${line} as after_id
           from ${from} as letter
       ), judged as materialized (
         select letter.*, letter.key is not null and bool_or(
                  (letter.held_lane is not null and letter.after_place > -2) or exists (
                    select 1 from ${schema}.dead_letter as earlier
                     where letter.key is not null and earlier.closed_at is null and earlier.key is not null
                       and ${sameKey("earlier")}
                       and (${place("earlier")}) < (${place("letter")})
                       and (${place("earlier")}) > (letter.after_place, letter.after_at, letter.after_id)
                  )) over ${line} as waits
           from lined as letter
       )`;
  return {
    // The next letters of a cause in the order of their messages, and which of them must wait for an earlier one.
    page: (names: readonly Condition[]) =>
      defineStatement(
        "sagabox.letters.page",
        `with looked as materialized (
           select letter.id, letter.origin, letter.consumer, letter.message_id, letter.topic, letter.key, letter.place,
                  letter.written_at, letter.held_lane
             from ${schema}.dead_letter as letter
            where letter.closed_at is null and letter.fingerprint = $1::text and letter.id <= $2::text::bigint
              and (${place("letter")}) > ($3::text::bigint, $4::text::timestamptz, $5::text)
              and ${deadLettersWhere(names, 7)}
            order by ${place("letter")}
            limit $6::integer
         ), ${judgeSql("looked")}
         select letter.id::text, letter.message_id, letter.topic, letter.key, letter.place::text,
                ${utc("letter.written_at")} as written_at, letter.waits
           from judged as letter
          order by ${place("letter")}`,
      ),
    // Closes those that may go, in one look at everything: none whose key has an earlier dead letter that does not go with
    // it, or a replayed one that is still on its way. What another operator has in hand is passed over, with what follows.
    closeInOrder: defineStatement(
      "sagabox.letters.close_in_order",
      `with given as materialized (
         select * from unnest($1::text::bigint[], $2::text::integer[], $3::text::bigint[]) as given (id, lane, stream)
       ), looked as materialized (
         select letter.id, letter.origin, letter.consumer, letter.message_id, letter.topic, letter.key, letter.place,
                letter.written_at, letter.held_lane, given.lane, given.stream
           from given
           join ${schema}.dead_letter as letter on letter.id = given.id
          where letter.closed_at is null
       ), ${judgeSql("looked")}, locked as materialized (
         select letter.id
           from ${schema}.dead_letter as letter
          where letter.id in (select id from given) and letter.closed_at is null
          order by letter.id
            for update skip locked
       ), free as materialized (
         select letter.*,
                letter.key is null or bool_and(letter.id in (select id from locked)) over ${line} as in_line
           from judged as letter
           left join ${schema}.consumer_group as reader on reader.name = letter.consumer
          where not letter.waits
            and not exists (
              select 1 from ${schema}.queue as moving
               where letter.stream is not null and letter.origin = 'consumer'
                 and moving.lane = reader.id * 256 + letter.lane and moving.stream = letter.stream
                 and exists (select 1 from ${schema}.dead_letter as sent
                              where sent.message_id = moving.message_id and sent.consumer = letter.consumer
                                and sent.closed_as = 'replayed'))
            and not exists (
              select 1 from ${schema}.outbox as moving
               where letter.stream is not null and letter.origin = 'outbox' and moving.again
                 and moving.due_at < 'infinity' and moving.lane = letter.lane and moving.stream = letter.stream)
       )
       update ${schema}.dead_letter as letter
          set closed_at = clock_timestamp(), closed_as = 'replayed'
         from free
        where letter.id = free.id and free.in_line and letter.id in (select id from locked)
       returning letter.id::text, letter.origin, letter.consumer, letter.message_id, letter.type, letter.topic,
                 letter.reason, letter.attempts, letter.error_message, letter.traceparent, letter.fingerprint,
                 letter.held_lane, letter.held_seq::text, free.lane, free.stream::text`,
    ),
    rearm: defineStatement(
      "sagabox.letters.rearm",
      `select id::text from unnest($1::text::bigint[]) as id where ${schema}.dead_letter_rearm(id)`,
    ),
    keep: defineStatement(
      "sagabox.letters.keep",
      `select given.id::text, ${schema}.dead_letter_keep_copy(given.id, given.lane, null, given.stream)::text as written_on
         from unnest($1::text::bigint[], $2::text::smallint[], $3::text::bigint[]) as given (id, lane, stream)`,
    ),
    deliver: defineStatement(
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
        where exists (select 1 from ${schema}.relay_lane where relay_lane.scope = reader.id)
        order by ${place("letter")}
       returning message_id, lane, seq::text`,
    ),
    // The letters were closed by an earlier statement of this transaction, so its xid is older than the seqs drawn here.
    send: defineStatement(
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
                order by ${place("letter")}) as sorted
       returning message_id, lane, seq::text`,
    ),
    // Where replayed letters are now: still in line, dead again, or neither and so handled. One look at everything, since
    // a row leaves its line in the transaction that writes its letter.
    outcomes: defineStatement(
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
      defineStatement(
        "sagabox.letters.held",
        `select count(*)::integer as count
           from (select 1 from ${schema}.dead_letter as letter
                  where letter.closed_at is null and letter.fingerprint = $1::text and letter.id <= $2::text::bigint
                    and ${deadLettersWhere(names, 3)}
                  limit 100000) as left_over`,
      ),
  };
}
