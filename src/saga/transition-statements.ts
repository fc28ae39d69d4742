// Columns of a transition as an object in a JSON array, so that one statement saves a batch.
export const transitionColumns = `(id text, version integer, status text, state json, step text, waits text, since double precision,
            error text, retries integer, due double precision, release boolean, cause text, actor text, lines json,
            input json, metadata json, "oldState" json, "newState" json, steps text[], incident text, resolution text, attachments text[])`;

export const toTimestampSql = (ms: string): string => `to_timestamp(${ms} / 1000)`;

export const completedAtSql = (status: string): string =>
  `case when ${status} in ('completed', 'compensated') then clock_timestamp() end`;

/** Maps a transition column to its SQL expression. */
type ColumnSource = (name: string) => string;

// Inserts the history lines of a transition.
export const logLinesSql = (schema: string, made: ColumnSource): string =>
  `logged as (
         insert into ${schema}.saga_audit_log
           (saga_id, version, event_type, step, old_status, new_status, note, cause, user_id, reason, trace_id, input,
            metadata, old_state, new_state)
         select saved.id, saved.version, line.event, line.place, line."from", line."to", line.note, ${made("cause")},
                ${made("actor")}, line.reason, saved.trace_id, case when line.nr = 1 then ${made("input")} end,
                case when line.nr = 1 then ${made("metadata")} end, case when line.nr = 1 then ${made("oldState")} end,
                case when line.nr = 1 then ${made("newState")} end
           from saved, json_to_recordset(${made("lines")}) as line
             (nr integer, event text, place text, "from" text, "to" text, note text, reason text)
          order by line.nr)`;

// Inserts or updates the incident of a transition that opens one.
export const openIncidentSql = (schema: string, made: ColumnSource): string =>
  `opened as (
         insert into ${schema}.saga_incident (saga_id, steps, error)
         select saved.id, ${made("steps")}, ${made("incident")} from saved where ${made("incident")} is not null
         on conflict (saga_id) where closed_at is null
         do update set steps = excluded.steps, error = excluded.error)`;

// A new instance uses one parameter per column, because parsing JSON would take a sixth of the statement's time. JSON
// parameters are cast from text, because postgres.js would encode a json parameter a second time.
const paramByName: Readonly<Record<string, string>> = {
  status: "$14::text",
  state: "$15::text::json",
  step: "$16::text",
  waits: "$17::text",
  since: "$18::double precision",
  error: "$19::text",
  retries: "$20::integer",
  due: "$21::double precision",
  attachments: "$22::text::text[]",
  cause: "$23::text",
  actor: "$24::text",
  lines: "$25::text::json",
  input: "$26::text::json",
  metadata: "$27::text::json",
  oldState: "$28::text::json",
  newState: "$29::text::json",
  steps: "$30::text::text[]",
  incident: "$31::text",
};
const paramFor: ColumnSource = (name) => paramByName[name] ?? "";

// Inserts an instance after its first decision, or nothing if its key is taken. Pending input is only detected here: it
// is rare, and a statement that could update one more table would be slower every time.
export const insertInstanceSql = (schema: string, fails: boolean): string =>
  `with saved as (
         insert into ${schema}.saga_instance
           (id, saga_type, definition_version, correlation_id, input, trace_id, traceparent, message_correlation_id,
            parent_id, parent_place, status, state, current_step, waits_for, waiting_since, last_error, retry_count,
            due_at, version, completed_at, claimed_by, claimed_until, claims, subject, attachments)
         values ($1::text, $2::text, $3::integer, $4::text, $5::text::json, $6::text, $7::text, $8::text, $9::text, $10::text,
                 ${paramFor("status")}, ${paramFor("state")}, ${paramFor("step")}, ${paramFor("waits")}, ${toTimestampSql(paramFor("since"))},
                 ${paramFor("error")}, ${paramFor("retries")}, ${toTimestampSql(paramFor("due"))}, 1, ${completedAtSql(paramFor("status"))},
                 $11::text, clock_timestamp() + $12::double precision * interval '1 ms',
                 case when $11::text is null then 0 else 1 end, $13::text, ${paramFor("attachments")})
         on conflict (saga_type, correlation_id) do nothing
         returning id, version, trace_id),
       ${logLinesSql(schema, paramFor)}${fails ? `,\n       ${openIncidentSql(schema, paramFor)}` : ""}
       select id, exists (select from ${schema}.saga_mail as pending
                           where pending.saga_type = $2::text and pending.correlation_id = $4::text and pending.saga_id is null
                             and pending.expires_at > clock_timestamp()) as has_input
         from saved`;
