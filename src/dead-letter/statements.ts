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
  key: (n: number) => `letter.key = $${n}::text`,
  correlationId: (n: number) => `letter.correlation_id = $${n}::text`,
  text: (n: number) =>
    `strpos(lower(letter.error_type || ': ' || letter.error_message), lower($${n}::text)) > 0`,
  since: (n: number) => `letter.failed_at >= $${n}::text::timestamptz`,
  until: (n: number) => `letter.failed_at < $${n}::text::timestamptz`,
} as const;

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
    // These functions run with more rights than the operator role has, and only act on closed dead letters.
    rearm: defineStatement(
      "sagabox.dead_letter.rearm",
      `select 1 where ${schema}.dead_letter_rearm($1::bigint)`,
    ),
    freeKey: defineStatement(
      "sagabox.dead_letter.free_key",
      `select ${schema}.dead_letter_free_key($1::bigint)`,
    ),
    keepMessage: defineStatement(
      "sagabox.dead_letter.keep_message",
      `select ${schema}.dead_letter_keep_copy($1::bigint, $2::smallint, null, $3::text::bigint)::text as written_on`,
    ),
    noteEdit: defineStatement(
      "sagabox.dead_letter.note_edit",
      `insert into ${schema}.dead_letter_edit (letter_id, actor, reason, before_hash, after_hash, contract)
       values ($1::bigint, $2::text, $3::text, $4::text, $5::text, $6::text)`,
    ),
    keepCopy: defineStatement(
      "sagabox.dead_letter.keep_copy",
      `select ${schema}.dead_letter_keep_copy($1::bigint, $2::smallint, $4::text, $3::text::bigint)::text as written_on`,
    ),
    movePlace: defineStatement(
      "sagabox.dead_letter.move_place",
      `select 1 where ${schema}.dead_letter_move_place($1::bigint, $2::text::date)`,
    ),
    // An earlier statement of this transaction closed the dead letter, so the xid was assigned before this seq.
    sendAgain: defineStatement(
      "sagabox.dead_letter.send_again",
      `insert into ${schema}.outbox
         (again, lane, seq, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at, expires_at)
       select true, $2::integer, nextval('${schema}.outbox_seq'), $3::text::bigint, letter.topic, letter.type,
              letter.message_id, $4::text::date, letter.priority, 0, letter.max_attempts, clock_timestamp(),
              case when letter.expires_at > clock_timestamp() then letter.expires_at end
         from ${schema}.dead_letter as letter
        where letter.id = $1::bigint`,
    ),
    // Only the group of the failed consumer gets the message again. A group without lanes has never read from this database.
    deliverAgain: defineStatement(
      "sagabox.dead_letter.deliver_again",
      `insert into ${schema}.queue
         (lane, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at, expires_at)
       select consumer_group.id * 256 + $2::integer, $3::text::bigint, letter.topic, letter.type, letter.message_id,
              $4::text::date, letter.priority, 0, letter.max_attempts, clock_timestamp(),
              case when letter.expires_at > clock_timestamp() then letter.expires_at end
         from ${schema}.dead_letter as letter
         join ${schema}.consumer_group on consumer_group.name = letter.consumer
        where letter.id = $1::bigint
          and exists (select 1 from ${schema}.relay_lane where relay_lane.scope = consumer_group.id)
       returning lane`,
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
            select held.place
              from gone
             cross join lateral (
               select row.ctid as place from ${schema}.outbox as row
                where row.lane = gone.held_lane and row.seq = gone.held_seq and row.due_at = 'infinity'
               offset 0) as held
             where gone.closed_at is null))
       )
       select count(*)::integer as count, (count(*) filter (where closed_at is null))::integer as open from gone`,
    ),
  };
}
