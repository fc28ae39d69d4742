import { defineStatement } from "../storage/index.ts";

export type DeadLetterStatements = ReturnType<typeof deadLetterStatements>;

const utc = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as ${column.replace(/^.*\./, "")}`;

const plain =
  "id::text origin consumer message_id kind type schema_version topic key aggregate_type aggregate_id saga_id " +
  "correlation_id causation_id traceparent source target priority max_attempts headers data reason attempts " +
  "error_type error_message stack_trace closed_as held_lane held_seq::text fingerprint";

const columns = (letter: string): string =>
  plain
    .split(" ")
    .map((column) => `${letter}.${column}`)
    .concat(
      ["written_at", "expires_at", "failed_at", "closed_at"].map((column) => utc(`${letter}.${column}`)),
    )
    .join(", ");

// Only the conditions in use become part of the statement: a plan for `$1 is null or …` could not use an index.
const CONDITIONS = {
  fingerprint: (n: number) => `letter.fingerprint = $${n}::text`,
  origin: (n: number) => `letter.origin = $${n}::text`,
  consumer: (n: number) => `letter.consumer = $${n}::text`,
  type: (n: number) => `letter.type = $${n}::text`,
  topic: (n: number) => `letter.topic = $${n}::text`,
  reason: (n: number) => `letter.reason = $${n}::text`,
  messageId: (n: number) => `letter.message_id = $${n}::text`,
  key: (n: number) => equalsHashed("letter.key", n),
  correlationId: (n: number) => equalsHashed("letter.correlation_id", n),
  text: (n: number) =>
    `strpos(lower(letter.error_type || ': ' || letter.error_message), lower($${n}::text)) > 0`,
  since: (n: number) => `letter.failed_at >= $${n}::text::timestamptz`,
  until: (n: number) => `letter.failed_at < $${n}::text::timestamptz`,
} as const;

/** The indexes of these columns hold hashes. */
function equalsHashed(column: string, n: number): string {
  return `hashtextextended(${column}, 0) = hashtextextended($${n}::text, 0) and ${column} = $${n}::text`;
}

/** The search conditions. "open" and "closed" take no parameter. */
export type Condition = keyof typeof CONDITIONS | "open" | "closed";

/** Returns the conditions as SQL for the table alias `letter`. Parameters are numbered from `first`. */
export function deadLettersWhere(names: readonly Condition[], first: number): string {
  let next = first;
  const parts = names.map((name) => {
    if (name === "open" || name === "closed")
      return `letter.closed_at is ${name === "open" ? "" : "not "}null`;
    return CONDITIONS[name](next++);
  });
  return ["true", ...parts].join("\n          and ");
}

/** SQL of dead letters. `schema` must be quoted already. */
export function deadLetterStatements(schema: string) {
  return {
    // A redelivery after a lost acknowledgement must not create a second open dead letter.
    bury: defineStatement(
      "sagabox.dead_letter.bury",
      `insert into ${schema}.dead_letter
         (origin, consumer, message_id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
          correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
          written_at, expires_at, reason, attempts, error_type, error_message, stack_trace, fingerprint)
       select $1::text, $2::text, $3::text, $4::text, $5::text, $6::integer, $7::text, $8::text, $9::text, $10::text,
              $11::text, $12::text, $13::text, $14::text, $15::text, $16::text, $17::smallint, $18::smallint,
              $19::text, $20::text, coalesce($21::text::timestamptz, clock_timestamp()), $22::text::timestamptz,
              $23::text, $24::integer, $25::text, $26::text, $27::text, $28::text
        where not exists (
          select 1
            from (select origin, consumer, closed_at from ${schema}.dead_letter
                   where message_id = $3::text offset 0) as open
           where open.origin = $1::text
             and open.consumer is not distinct from $2::text
             and open.closed_at is null
        )
       returning id::text`,
    ),
    list: (names: readonly Condition[]) =>
      defineStatement(
        "sagabox.dead_letter.list",
        `select letter.id::text, letter.origin, letter.consumer, letter.message_id, letter.type, letter.topic,
              letter.key, letter.correlation_id, letter.reason, letter.attempts, letter.error_type,
              left(letter.error_message, 500) as error_message, ${utc("letter.failed_at")}, letter.closed_as,
              letter.fingerprint
         from ${schema}.dead_letter as letter
        where ($2::bigint is null or letter.id < $2::bigint)
          and ${deadLettersWhere(names, 3)}
        order by letter.id desc
        limit $1::integer`,
      ),
    show: defineStatement(
      "sagabox.dead_letter.show",
      `select ${columns("letter")} from ${schema}.dead_letter as letter where letter.id = $1::bigint`,
    ),
    // The row lock makes a second operator wait and then find the dead letter closed.
    close: defineStatement(
      "sagabox.dead_letter.close",
      `update ${schema}.dead_letter as letter
          set closed_at = clock_timestamp(), closed_as = $2::text
        where letter.id = $1::bigint and letter.closed_at is null
       returning ${columns("letter")}`,
    ),
    // The saga that sent these commands has been resolved. A replay at the same moment holds the row lock and wins.
    discardMessages: defineStatement(
      "sagabox.dead_letter.discard_messages",
      `update ${schema}.dead_letter as letter
          set closed_at = clock_timestamp(), closed_as = 'discarded'
        where letter.message_id = any($1::text::text[]) and letter.origin = 'consumer' and letter.closed_at is null`,
    ),
    ...closeInOrderStatements(schema),
    // The functions in the next four statements run with more rights than the operator role has, and only act on closed
    // dead letters.
    rearm: defineStatement(
      "sagabox.dead_letter.rearm",
      `select id::text from unnest($1::text::bigint[]) as id where ${schema}.dead_letter_rearm(id)`,
    ),
    freeKeys: defineStatement(
      "sagabox.dead_letter.free_keys",
      `select ${schema}.dead_letter_free_key(id) from unnest($1::text::bigint[]) as id`,
    ),
    keep: defineStatement(
      "sagabox.dead_letter.keep",
      `select given.id::text,
              ${schema}.dead_letter_keep_copy(given.id, given.lane, given.data, given.stream)::text as written_on
         from unnest($1::text::bigint[], $2::text::smallint[], $3::text::bigint[], $4::text::text[])
              as given (id, lane, stream, data)`,
    ),
    moveRow: defineStatement(
      "sagabox.dead_letter.move_row",
      `select given.id::text from unnest($1::text::bigint[], $2::text::date[]) as given (id, day)
        where ${schema}.dead_letter_move_row(given.id, given.day)`,
    ),
    // An earlier statement of this transaction closed the dead letters, so the xid was assigned before these seqs.
    send: defineStatement(
      "sagabox.dead_letter.send",
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
                order by ${position("letter")}) as sorted
       returning message_id, lane, seq::text`,
    ),
    // Only the group of the failed consumer gets the message again. A group without lanes has never read from this database.
    deliver: defineStatement(
      "sagabox.dead_letter.deliver",
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
        order by ${position("letter")}
       returning message_id, lane, seq::text`,
    ),
    noteEdit: defineStatement(
      "sagabox.dead_letter.note_edit",
      `insert into ${schema}.dead_letter_edit (dead_letter_id, actor, reason, before_hash, after_hash, contract)
       values ($1::bigint, $2::text, $3::text, $4::text, $5::text, $6::text)`,
    ),
    // Skips rows that another cleaner or an operator has locked. Deleting an open dead letter also deletes the
    // tombstone that blocks its key.
    forget: defineStatement(
      "sagabox.dead_letter.forget",
      `with old as materialized (
         select letter.id from ${schema}.dead_letter as letter
          where letter.failed_at < (select clock_timestamp()) - $1::text::interval
          order by letter.failed_at
          limit $2::integer
            for update skip locked
       ), gone as (
         delete from ${schema}.dead_letter as letter
          where letter.id = any(array(select id from old))
         returning letter.held_lane, letter.held_seq, letter.closed_at
       ), freed as (
         delete from ${schema}.outbox
          where ctid = any(array(
            select held.row_id
              from gone
             cross join lateral (
               select row.ctid as row_id from ${schema}.outbox as row
                where row.lane = gone.held_lane and row.seq = gone.held_seq and row.due_at = 'infinity'
               offset 0) as held
             where gone.closed_at is null))
       )
       select count(*)::integer as count, (count(*) filter (where closed_at is null))::integer as open from gone`,
    ),
  };
}

const position = (row: string): string => `${row}.key_order, ${row}.written_at, ${row}.message_id`;

/** SQL that reads and closes dead letters of one cause in the order of their messages. `schema` must be quoted already. */
function closeInOrderStatements(schema: string) {
  // Messages of one key to one destination keep their order. Messages without a key have no order.
  const sameKey = (other: string): string =>
    `hashtextextended(${other}.key, 0) = hashtextextended(letter.key, 0) and ${other}.key = letter.key
              and ${other}.topic = letter.topic and ${other}.origin = letter.origin
              and ${other}.consumer is not distinct from letter.consumer`;
  const keyOrder = `(partition by letter.origin, letter.consumer, letter.topic, letter.key order by ${position("letter")})`;
  // Decides which dead letters in `from` must wait: those whose key has an earlier open dead letter outside `from`, and all
  // later ones of that key. A dead letter that still has its outbox row must also be the first of its key in `from`,
  // because the others get new rows behind it.
  const judgeSql = (from: string): string => `lined as materialized (
         select letter.*, lag(letter.key_order, 1, -2::bigint) over ${keyOrder} as after_order,
                lag(letter.written_at, 1, '-infinity'::timestamptz) over ${keyOrder} as after_at,
                lag(letter.message_id, 1, ''::text) over ${keyOrder} as after_id
           from ${from} as letter
       ), judged as materialized (
         select letter.*, letter.key is not null and bool_or(
                  (letter.held_lane is not null and letter.after_order > -2) or exists (
                    select 1 from ${schema}.dead_letter as earlier
                     where letter.key is not null and earlier.closed_at is null and earlier.key is not null
                       and ${sameKey("earlier")}
                       and (${position("earlier")}) < (${position("letter")})
                       and (${position("earlier")}) > (letter.after_order, letter.after_at, letter.after_id)
                  )) over ${keyOrder} as waits
           from lined as letter
       )`;
  return {
    // The next dead letters of a cause in the order of their messages, and whether each must wait for an earlier one.
    listInOrder: (names: readonly Condition[]) =>
      defineStatement(
        "sagabox.dead_letter.list_in_order",
        `with looked as materialized (
           select letter.id, letter.origin, letter.consumer, letter.message_id, letter.topic, letter.key, letter.key_order,
                  letter.written_at, letter.held_lane
             from ${schema}.dead_letter as letter
            where letter.closed_at is null and letter.fingerprint = $1::text and letter.id <= $2::text::bigint
              and (${position("letter")}) > ($3::text::bigint, $4::text::timestamptz, $5::text)
              and ${deadLettersWhere(names, 7)}
            order by ${position("letter")}
            limit $6::integer
         ), ${judgeSql("looked")}
         select letter.id::text, letter.message_id, letter.topic, letter.key, letter.key_order::text as "keyOrder",
                ${utc("letter.written_at")}, letter.waits
           from judged as letter
          order by ${position("letter")}`,
      ),
    // Closes the dead letters that need not wait, in one snapshot: a key must have no earlier open dead letter outside the
    // batch and no replayed message in flight. Rows locked by another operator are skipped, with the later ones of their key.
    closeInOrder: defineStatement(
      "sagabox.dead_letter.close_in_order",
      `with given as materialized (
         select * from unnest($1::text::bigint[], $2::text::integer[], $3::text::bigint[]) as given (id, lane, stream)
       ), looked as materialized (
         select letter.id, letter.origin, letter.consumer, letter.message_id, letter.topic, letter.key, letter.key_order,
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
                letter.key is null or bool_and(letter.id in (select id from locked)) over ${keyOrder} as in_line
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
  };
}
