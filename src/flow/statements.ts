import { defineStatement } from "../storage/index.ts";

/** SQL of recorded flow events. `schema` must be quoted already. */
export function flowStatements(schema: string) {
  const table = `${schema}.flow_event`;
  const time = (column: string): string =>
    `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;
  const columns = `flow, message_id, correlation_id, type, causation_id, source, key,
              ${time("happened_at")} as happened_at, ${time("recorded_at")} as recorded_at`;
  return {
    // The inbox wraps this statement with its deduplication, so that an event delivered twice is recorded once.
    record: `insert into ${table}
               (flow, message_id, correlation_id, type, causation_id, source, key, happened_at)
             select $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text::timestamptz
               from fresh
             on conflict do nothing`,
    ofCorrelation: defineStatement(
      "sagabox.flow.of_correlation",
      `select ${columns}
         from ${table}
        where correlation_id = $1::text
        order by flow_event.happened_at, message_id
        limit $2::integer`,
    ),
    ofCorrelations: defineStatement(
      "sagabox.flow.of_correlations",
      `select ${columns}
         from ${table}
        where flow = $1::text and correlation_id = any($2::text::text[])
        order by flow_event.happened_at, message_id`,
    ),
    // Pages through idle paths, longest idle first.
    quiet: defineStatement(
      "sagabox.flow.quiet",
      `select correlation_id, ${time("max(recorded_at)")} as seen_at
         from ${table}
        where open and flow = $1::text
        group by correlation_id
       having max(recorded_at) <= (select clock_timestamp()) - $2::double precision * interval '1 ms'
          and (max(recorded_at), correlation_id) > ($3::text::timestamptz, $4::text)
        order by max(recorded_at), correlation_id
        limit $5::integer`,
    ),
    // Closes messages, not paths: an event that arrives concurrently stays open, and its path is judged again.
    close: defineStatement(
      "sagabox.flow.close",
      `update ${table} set open = false
        where flow = $1::text and message_id = any($2::text::text[]) and open`,
    ),
    // Deletes whole paths only: old events stay as long as their path has a newer event.
    forget: defineStatement(
      "sagabox.flow.forget",
      `with horizon as materialized (
         select clock_timestamp() - $1::double precision * interval '1 ms' as at
       )
       delete from ${table}
        where ctid = any(array(
          select old.ctid from ${table} as old
           where old.recorded_at < (select at from horizon)
             and not exists (select 1 from ${table} as young
                              where young.correlation_id = old.correlation_id and young.flow = old.flow
                                and young.recorded_at >= (select at from horizon))
           limit $2::integer
             for update skip locked))`,
    ),
  };
}
