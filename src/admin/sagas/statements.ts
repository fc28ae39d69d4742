import { defineStatement, type Statement } from "../../storage/index.ts";

const utc = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

const summary = `instance.id, instance.saga_type as type, instance.definition_version as "definitionVersion",
       instance.correlation_id as key, instance.status, instance.current_step as "currentStep",
       instance.waits_for as "waitsFor", ${utc("instance.waiting_since")} as "waitingSince", instance.version,
       instance.last_error as "lastError", instance.retry_count as "retryCount", instance.trace_id as "traceId",
       instance.message_correlation_id as "correlationId", instance.parent_id as "parentId",
       instance.parent_step as "parentStep", ${utc("instance.due_at")} as "dueAt", instance.claimed_by as "claimedBy",
       ${utc("instance.claimed_until")} as "claimedUntil", ${utc("instance.created_at")} as "createdAt",
       ${utc("instance.updated_at")} as "updatedAt", ${utc("instance.completed_at")} as "completedAt"`;

/** A filter on instances: the condition, with `?` for its value. */
const filters = {
  type: "instance.saga_type = ?::text",
  status: "instance.status = ?::text",
  step: "(instance.current_step = ?::text or split_part(instance.current_step, '@', 1) = ?::text)",
  key: "instance.correlation_id = ?::text",
  correlationId: "instance.message_correlation_id = ?::text",
  olderThanMs: "instance.created_at < clock_timestamp() - ?::double precision * interval '1 ms'",
  after: "instance.id < ?::text",
} as const;

export type FilterName = keyof typeof filters;

/** SQL of the room. `schema` is quoted already. */
export function adminStatements(schema: string) {
  const instances = `${schema}.saga_instance as instance`;
  return {
    // Only the conditions that are asked for, so that each finds its own index. Ids are in order of time.
    listSagas: (names: readonly FilterName[]): Statement => {
      const conditions = names.map((name, index) => filters[name].replaceAll("?", `$${index + 2}`));
      const where = conditions.length === 0 ? "" : `where ${conditions.join(" and ")}`;
      return defineStatement(
        "sagabox.admin.list_sagas",
        `select ${summary} from ${instances} ${where} order by instance.id desc limit $1::integer`,
      );
    },
    showSaga: defineStatement(
      "sagabox.admin.show_saga",
      `select ${summary}, instance.input::text as input, instance.state::text as state,
              (select count(*)::integer from ${schema}.saga_input as pending where pending.saga_id = instance.id) as "pendingInputs"
         from ${instances} where instance.id = $1::text`,
    ),
    children: defineStatement(
      "sagabox.admin.children",
      `select ${summary} from ${instances} where instance.parent_id = $1::text order by instance.id limit 1000`,
    ),
    history: defineStatement(
      "sagabox.admin.history",
      `select line.id::text, ${utc("line.timestamp")} as at, line.version, line.event_type as event, line.step,
              line.old_status as "from", line.new_status as "to", line.note, line.cause, line.user_id as actor,
              line.reason, line.trace_id as "traceId", line.input::text as input, line.old_state::text as "oldState",
              line.new_state::text as "newState"
         from ${schema}.saga_audit_log as line
        where line.saga_id = $1::text and line.id > $2::bigint
        order by line.id limit $3::integer`,
    ),
    exists: defineStatement(
      "sagabox.admin.saga_exists",
      `select instance.id from ${instances} where instance.id = $1::text`,
    ),
    // A signal that was heard, or refused, has a line under its own cause.
    heard: defineStatement(
      "sagabox.admin.signal_heard",
      `select line.id from ${schema}.saga_audit_log as line
        where line.saga_id = $1::text and line.cause = $2::text limit 1`,
    ),
    incidents: defineStatement(
      "sagabox.admin.incidents",
      `select incident.id::text, incident.saga_id as "sagaId", instance.saga_type as type,
              instance.correlation_id as key, to_json(incident.steps)::text as steps, incident.error,
              ${utc("incident.opened_at")} as "openedAt", ${utc("incident.closed_at")} as "closedAt", incident.resolution,
              instance.version, case when incident.closed_at is null then instance.state::text end as state
         from ${schema}.saga_incident as incident
         join ${instances} on instance.id = incident.saga_id
        where ($2::boolean is null or (incident.closed_at is null) = $2::boolean)
          and ($3::text is null or instance.saga_type = $3::text)
          and ($4::text is null or incident.saga_id = $4::text)
          and ($5::bigint is null or incident.id < $5::bigint)
        order by incident.id desc limit $1::integer`,
    ),
    openDeadLetters: defineStatement(
      "sagabox.admin.open_dead_letters",
      `select letter.id::text, letter.message_id as "messageId" from ${schema}.dead_letter as letter
        where letter.message_id = any($1::text::text[]) and letter.closed_at is null order by letter.id`,
    ),
    // A saga may wait long for an event, a time or a child. A saga that waits for a command's reply counts as slow.
    stuck: defineStatement(
      "sagabox.admin.stuck",
      `with horizon as materialized (
         select clock_timestamp() as now, clock_timestamp() - $1::double precision * interval '1 ms' as at),
       overdue as materialized (
         select pending.saga_id, min(pending.arrived_at) as since from ${schema}.saga_input as pending
          where pending.saga_id is not null and pending.arrived_at < (select at from horizon)
          group by pending.saga_id),
       suspects as (
         select id from ${schema}.saga_instance where completed_at is null and status = 'failed'
         union
         select id from ${schema}.saga_instance
          where completed_at is null and status in ('started', 'running', 'completing', 'compensating')
            and updated_at < (select at from horizon)
         union
         select id from ${schema}.saga_instance where due_at < (select at from horizon)
         union
         select saga_id from overdue),
       judged as (
         select ${summary},
                ${utc("least(overdue.since, case when instance.due_at < horizon.at then instance.due_at end)")} as "overdueSince",
                case when instance.status = 'failed' then instance.state::text end as state,
                case
                  when instance.status = 'failed' then 'incident'
                  when (instance.due_at < horizon.at or overdue.since is not null)
                   and instance.claimed_until > horizon.now then 'held'
                  when instance.due_at < horizon.at or overdue.since is not null then 'unclaimed'
                  when instance.completed_at is null and instance.updated_at < horizon.at
                   and instance.waits_for !~ '^(wait|delay|child):' then 'slow'
                end as reason
           from suspects
           join ${instances} on instance.id = suspects.id
          cross join horizon
           left join overdue on overdue.saga_id = instance.id)
       select * from judged
        where reason is not null and ($2::text is null or type = $2::text)
        order by array_position(array['incident', 'unclaimed', 'held', 'slow'], reason), "updatedAt"
        limit $3::integer`,
    ),
    page: defineStatement(
      "sagabox.admin.page",
      `select instance.id from ${instances}
        where (instance.completed_at is null) = $1::boolean
          and ($2::text is null or instance.saga_type = $2::text)
          and ($3::text is null or instance.id < $3::text)
          and instance.saga_type in (select json_array_elements_text($5::json))
        order by instance.id desc limit $4::integer`,
    ),
    strangers: defineStatement(
      "sagabox.admin.strangers",
      `select instance.saga_type as type, count(*)::integer as open from ${instances}
        where instance.completed_at is null and ($2::text is null or instance.saga_type = $2::text)
          and instance.saga_type not in (select json_array_elements_text($1::json))
        group by instance.saga_type order by instance.saga_type`,
    ),
    turns: defineStatement(
      "sagabox.admin.turns",
      `select line.version, line.event_type, line.step, line.old_status, line.new_status, line.input::text as input,
              line.metadata::text as drawn, extract(epoch from line.timestamp) * 1000 as at_ms
         from ${schema}.saga_audit_log as line
        where line.saga_id = $1::text and line.event_type <> 'ignored'
        order by line.id`,
    ),
  };
}
