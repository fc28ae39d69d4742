import { isWorking, sameStream } from "../../lanes/index.ts";
import { defineStatement } from "../../storage/index.ts";

const utc = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

// An outbox or queue row, the owner of its lane, and the oldest row of its key before it.
const movingColumns = (schema: string, table: "outbox" | "queue", open: boolean): string =>
  `moving.lane, moving.seq::text, moving.attempts, moving.max_attempts, moving.again,
       ${open ? "moving.last_error" : "null::text"} as last_error,
       ${table === "queue" ? `${schema}.consumer_group.name` : "null::text"} as consumer,
       case when moving.due_at = 'infinity' then null else ${utc("moving.due_at")} end as due_at,
       moving.due_at = 'infinity' as held, moving.due_at <= clock_timestamp() as is_due,
       moving.lease_until > clock_timestamp() as optimistic, ${utc("moving.expires_at")} as expires_at,
       owner.worker as owner,
       ahead.message_id as ahead_id, ahead.attempts as ahead_attempts, ahead.last_error as ahead_error,
       case when ahead.due_at = 'infinity' then null else ${utc("ahead.due_at")} end as ahead_due_at,
       ahead.due_at = 'infinity' as ahead_held
  from ${schema}.${table} as moving
  left join ${schema}.relay_lane as lane on lane.lane = moving.lane
  left join ${schema}.member as owner on owner.id = lane.owner and ${isWorking("owner")}
  left join lateral (
    ${open ? aheadSql(schema, table) : NONE_AHEAD}
  ) as ahead on true`;

const aheadSql = (schema: string, table: "outbox" | "queue"): string =>
  `select front.message_id, front.attempts, front.last_error, front.due_at
      from ${schema}.${table} as front
     where ${sameStream("front", "moving.lane", "moving.stream")} and front.seq < moving.seq
     order by front.seq limit 1`;

const NONE_AHEAD =
  "select null::text as message_id, null::smallint as attempts, null::text as last_error, null::timestamptz as due_at";

/**
 * SQL that explains a message. Without `open` it reads only what viewers may read: no keys, headers, error texts, operator
 * actions or messages ahead. `schema` must be quoted already.
 */
export function explainStatements(schema: string, open = true) {
  const statementName = (name: string): string => `sagabox.explain.${name}${open ? "" : "_masked"}`;
  const [key, headers] = open ? ["key", "headers"] : ["null::text as key", "'{}' as headers"];
  // An operator may not read the data of archived messages, only its size.
  const bytesSql = (table: "message" | "scheduled", same: string): string =>
    `(select masked.data_bytes from ${schema}.masked_${table} as masked where masked.id = ${table}.id${same})`;
  const letterBytes = open
    ? "octet_length(data)"
    : `(select masked.data_bytes from ${schema}.masked_dead_letter as masked where masked.id = dead_letter.id)`;
  return {
    // Prefers the archive to the copies in `scheduled` and `dead_letter`.
    message: defineStatement(
      statementName("message"),
      `select * from (
         select 1 as rank, id, kind, type, schema_version, topic, ${key}, saga_id, correlation_id, causation_id, traceparent,
                source, priority, lane::integer, seq::text, ${headers},
                ${bytesSql("message", " and masked.written_on = message.written_on")} as bytes, ${utc("written_at")} as written_at,
                ${utc("expires_at")} as expires_at, null::text as scheduled_for, to_char(written_on, 'YYYY-MM-DD') as written_on
           from ${schema}.message where id = $1::text
         union all
         select 2, id, kind, type, schema_version, topic, ${key}, saga_id, correlation_id, causation_id, traceparent, source,
                priority, lane::integer, null, ${headers}, ${bytesSql("scheduled", "")}, ${utc("written_at")}, ${utc("expires_at")},
                ${utc("due_at")}, null
           from ${schema}.scheduled where id = $1::text
         union all
         select 3, message_id, kind, type, schema_version, topic, ${key}, saga_id, correlation_id, causation_id, traceparent,
                source, priority, null, null, ${headers}, ${letterBytes}, ${utc("written_at")}, ${utc("expires_at")}, null, null
           from ${schema}.dead_letter where message_id = $1::text
       ) as found order by rank, written_on desc limit 1`,
    ),
    // By lane and seq, and for replayed or republished copies by their own index.
    outbox: defineStatement(
      statementName("outbox"),
      `select ${movingColumns(schema, "outbox", open)}
        where (moving.lane = $2::integer and moving.seq = $3::text::bigint)
           or (moving.again and moving.message_id = $1::text)
        order by moving.seq`,
    ),
    queue: defineStatement(
      statementName("queue"),
      `select ${movingColumns(schema, "queue", open)}
         join ${schema}.consumer_group on consumer_group.id = moving.lane / 256
        where moving.lane = any(array(select known.id * 256 + $2::integer from ${schema}.consumer_group as known))
          and moving.message_id = $1::text
        order by consumer_group.name`,
    ),
    receipts: defineStatement(
      "sagabox.explain.receipts",
      `select relay, ${utc("sent_at")} as sent_at from ${schema}.receipt
        where lane = $1::integer and last_seq >= $2::text::bigint and first_seq <= $2::text::bigint
          and $2::text::bigint = any(seqs)
        order by sent_at limit 20`,
    ),
    groups: defineStatement(
      "sagabox.explain.groups",
      `select consumer_group.name, ${utc("subscription.created_at")} as since
         from ${schema}.subscription join ${schema}.consumer_group on consumer_group.id = subscription.group_id
        where subscription.topic = $1::text order by consumer_group.name`,
    ),
    subscriptions: defineStatement(
      "sagabox.explain.subscriptions",
      `select exists (select 1 from ${schema}.subscription) as known`,
    ),
    // One primary-key lookup for each consumer that subscribed or has a dead letter of the message.
    inbox: defineStatement(
      "sagabox.explain.inbox",
      `select inbox.consumer_name as consumer, ${utc("inbox.consumed_at")} as consumed_at, inbox.processing_duration_ms, inbox.effect,
              inbox.effect_of, inbox.undone_by
         from (select name from ${schema}.consumer_group
               union select consumer from ${schema}.dead_letter where message_id = $1::text and consumer is not null
               union select unnest($2::text::text[])) as known (name)
         join ${schema}.consumer_inbox as inbox on inbox.consumer_name = known.name and inbox.event_id = $1::text
        order by inbox.consumed_at`,
    ),
    letters: defineStatement(
      statementName("letters"),
      `select id::text, origin, consumer, reason, attempts, error_type, ${open ? "left(error_message, 500)" : "'(its text is for operators)'"} as error_message,
              ${utc("failed_at")} as failed_at, ${utc("closed_at")} as closed_at, closed_as
         from ${schema}.dead_letter as letter where message_id = $1::text order by letter.id`,
    ),
    saga: defineStatement(
      "sagabox.explain.saga",
      `select id, saga_type as type, status, current_step from ${schema}.saga_instance where id = $1::text`,
    ),
    actions: defineStatement(
      statementName("actions"),
      open
        ? `select ${utc("log.timestamp")} as at, log.actor, log.action, log.reason, log.outcome
             from ${schema}.audit_log as log
            where (log.target_kind = 'message' and log.target_id = $1::text)
               or (log.target_kind = 'dead_letter' and log.target_id = any($2::text::text[]))
            order by log.timestamp limit 100`
        : `select null as at, null as actor, null as action, null as reason, null as outcome
            where $1::text is null and $2::text is null and false`,
    ),
  };
}

/** Conditions on the archive. Each has the expression of the index `message_search` or of an older index. */
const archiveConditions = {
  // The commands and replies of a saga have its id as their key. So a search by key also takes the messages of its sagas.
  key: "(key = $1::text or saga_id = any($3::text::text[]))",
  correlationId: "correlation_id = $1::text",
  traceId: "substr(traceparent, 4, 32) = $1::text",
  sagaId: "saga_id = $1::text",
} as const;

export type FoundBy = keyof typeof archiveConditions;

const equalsHashed = (expression: string): string =>
  `hashtextextended(${expression}, 0) = hashtextextended($1::text, 0) and ${expression} = $1::text`;

/** Conditions on `scheduled` and `dead_letter`, whose indexes hold hashes. */
const copyConditions: Readonly<Record<FoundBy, string>> = {
  key: `((${equalsHashed("key")}) or saga_id = any($3::text::text[]))`,
  correlationId: equalsHashed("correlation_id"),
  traceId: equalsHashed("substr(traceparent, 4, 32)"),
  sagaId: archiveConditions.sagaId,
};

/**
 * SQL that finds messages and sagas. Without `open` it reads only what viewers may read: no keys and no texts. `schema`
 * must be quoted already.
 */
export function findStatements(schema: string, open = true) {
  const statementName = (name: string): string => `sagabox.explain.find_${name}${open ? "" : "_masked"}`;
  const instances = `${schema}.${open ? "saga_instance" : "masked_saga_instance"} as instance`;
  const log = `${schema}.${open ? "saga_audit_log" : "masked_saga_audit_log"}`;
  const text = (column: string): string => (open ? column : "null::text");
  const sagas = (name: string, condition: string) =>
    defineStatement(
      statementName(name),
      `select instance.id from ${instances} where ${condition} order by instance.id desc limit $2::integer`,
    );
  return {
    // The index is a BRIN index, whose cost the planner estimates as if it had to read the whole table.
    avoidFullScans: defineStatement(
      "sagabox.explain.avoid_full_scans",
      `select set_config('enable_seqscan', 'off', true)`,
    ),
    // What the text is the id of.
    ids: defineStatement(
      "sagabox.explain.find_ids",
      `select exists (select 1 from ${schema}.message where id = $1::text)
           or exists (select 1 from ${schema}.scheduled where id = $1::text)
           or exists (select 1 from ${schema}.dead_letter where message_id = $1::text) as message,
              exists (select 1 from ${schema}.saga_instance where id = $1::text) as saga,
              (select message_id from ${schema}.dead_letter where id = $2::text::bigint) as letter`,
    ),
    messages: (by: FoundBy) =>
      defineStatement(
        statementName(`messages_by_${by.toLowerCase()}`),
        `select id from (
           select id, written_at from ${schema}.message where ${archiveConditions[by]}
           union all
           select id, written_at from ${schema}.scheduled where ${copyConditions[by]}
           union all
           select message_id, written_at from ${schema}.dead_letter where ${copyConditions[by]}
         ) as found
         group by id order by min(written_at) desc, id desc limit $2::integer`,
      ),
    sagasByKey: sagas("sagas_by_key", open ? "instance.correlation_id = $1::text" : "$1::text is null"),
    sagasByCorrelation: sagas("sagas_by_correlation", "instance.message_correlation_id = $1::text"),
    // The log has an index for it, the instances have none.
    sagasByTrace: sagas(
      "sagas_by_trace",
      `instance.id in (select begun.saga_id from ${log} as begun where begun.trace_id = $1::text and begun.version = 1)`,
    ),
    saga: defineStatement(
      statementName("saga"),
      `select instance.id, instance.saga_type as type, ${text("instance.correlation_id")} as key, instance.status,
              instance.current_step as "currentStep", instance.waits_for as "waitsFor",
              ${utc("instance.waiting_since")} as "waitingSince", ${text("instance.last_error")} as "lastError",
              instance.message_correlation_id as "correlationId", ${utc("instance.due_at")} as "dueAt",
              instance.due_at <= clock_timestamp() as "isDue", instance.claimed_by as "claimedBy",
              instance.claimed_until > clock_timestamp() as "isClaimed", ${utc("instance.created_at")} as "createdAt",
              ${utc("instance.completed_at")} as "completedAt",
              (select count(*)::integer from ${schema}.${open ? "saga_input" : "masked_saga_input"} as pending
                where pending.saga_id = instance.id) as "pendingInputs"
         from ${instances} where instance.id = $1::text`,
    ),
    history: defineStatement(
      statementName("history"),
      `select ${utc("line.timestamp")} as at, line.event_type as event, line.step, line.old_status as "from",
              line.new_status as "to", ${text("line.note")} as note
         from ${log} as line
        where line.saga_id = $1::text and line.event_type <> 'ignored'
        order by line.id limit $2::integer`,
    ),
  };
}
