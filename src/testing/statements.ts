import { defineStatement } from "../storage/index.ts";

const SHIFT = "$1::double precision * interval '1 ms'";
const isInFuture = (column: string): string =>
  `${column} > (select clock_timestamp()) and isfinite(${column})`;

/** Statements that move waiting times into the past. `$1` is the distance in milliseconds. */
export function timeStatements(schema: string) {
  // A row that is due already may be claimed, so only rows that still wait or can still expire are updated.
  const shiftRowsSql = (table: "outbox" | "queue") =>
    defineStatement(
      `sagabox.testing.move_${table}`,
      `update ${schema}.${table} set due_at = case when due_at > clock_timestamp() then due_at - ${SHIFT} else due_at end,
              expires_at = expires_at - ${SHIFT}
        where isfinite(due_at) and (due_at > (select clock_timestamp()) or ${isInFuture("expires_at")})
        returning lane`,
    );
  return {
    // Instances are locked first and in order of id, as all other code does.
    lockSagas: defineStatement(
      "sagabox.testing.lock_sagas",
      `select id, version, state::text as state from ${schema}.saga_instance where completed_at is null order by id for update`,
    ),
    // The version is increased, so that no worker continues with a cached state.
    moveSagas: defineStatement(
      "sagabox.testing.move_sagas",
      `with moved as (
         update ${schema}.saga_instance as instance
            set state = given.state, version = instance.version + 1, due_at = instance.due_at - ${SHIFT},
                waiting_since = instance.waiting_since - ${SHIFT}, created_at = instance.created_at - ${SHIFT},
                updated_at = instance.updated_at - ${SHIFT}
           from json_to_recordset($2::json) as given (id text, state json)
          where instance.id = given.id
         returning instance.id, instance.version, instance.trace_id)
       insert into ${schema}.saga_audit_log (saga_id, version, event_type, note, cause, trace_id)
       select id, version, 'noted', $3::text, 'test', trace_id from moved`,
    ),
    moveInput: defineStatement(
      "sagabox.testing.move_input",
      `update ${schema}.saga_input set arrived_at = arrived_at - ${SHIFT}, expires_at = expires_at - ${SHIFT}`,
    ),
    moveIncidents: defineStatement(
      "sagabox.testing.move_incidents",
      `update ${schema}.saga_incident set opened_at = opened_at - ${SHIFT} where closed_at is null`,
    ),
    moveScheduled: defineStatement(
      "sagabox.testing.move_scheduled",
      `update ${schema}.scheduled set due_at = due_at - ${SHIFT}, expires_at = expires_at - ${SHIFT} returning id`,
    ),
    moveOutbox: shiftRowsSql("outbox"),
    moveQueue: shiftRowsSql("queue"),
    moveMessages: defineStatement(
      "sagabox.testing.move_messages",
      `update ${schema}.message set expires_at = expires_at - ${SHIFT} where ${isInFuture("expires_at")}`,
    ),
    moveFlows: defineStatement(
      "sagabox.testing.move_flows",
      `update ${schema}.flow_event set happened_at = happened_at - ${SHIFT}, recorded_at = recorded_at - ${SHIFT} where open`,
    ),
    notify: defineStatement("sagabox.testing.notify", "select pg_notify($1::text, $2::text)"),
  };
}

/** Statements that end the sessions and leases of crashed workers. */
export function crashStatements(schema: string) {
  const freeSql = (table: "outbox" | "queue"): string =>
    `update ${schema}.${table} set lease_until = null where lease_until is not null`;
  return {
    // PostgreSQL notices a lost connection only after a running statement has ended, so the session is terminated.
    disconnect: defineStatement(
      "sagabox.testing.disconnect",
      "select pg_terminate_backend(pid) from pg_stat_activity where pid = any($1::text::integer[])",
    ),
    // Any worker removes members whose lease ended more than a second ago.
    endLeases: defineStatement(
      "sagabox.testing.end_leases",
      `with sagas as (
         update ${schema}.saga_instance set claimed_until = clock_timestamp() - interval '1 ms'
          where claimed_until > clock_timestamp()),
       members as (update ${schema}.member set lease_until = clock_timestamp() - interval '2 seconds'),
       waiting as (${freeSql("outbox")})
       ${freeSql("queue")}`,
    ),
  };
}
