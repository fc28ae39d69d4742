import { defineStatement } from "../storage/index.ts";

/** SQL statements of this room. `schema` must be quoted. */
export function requestStatements(schema: string) {
  return {
    // The inbox wraps this statement, so a reply delivered twice is stored once. A reply after the replay of a dead letter
    // replaces the stored failure. Parameters: id, outcome, body, channel, payload.
    keep: `insert into ${schema}.reply as kept (request_id, outcome, body)
           select $1::text, $2::text, $3::text from fresh
           on conflict (request_id) do update
              set outcome = excluded.outcome, body = excluded.body, arrived_at = excluded.arrived_at
            where kept.outcome = 'failed'
           returning pg_notify($4::text, $5::text)`,
    // A request that could not be sent is a dead letter of the outbox.
    find: defineStatement(
      "sagabox.requests.find",
      `select reply.request_id, reply.outcome, reply.body, null::text as reason, null::text as error
         from ${schema}.reply
        where reply.request_id = any($1::text::text[])
       union all
       select letter.message_id, 'failed', null, letter.reason, letter.error_message
         from unnest($1::text::text[]) as asked (id)
        cross join lateral (
          select message_id, origin, closed_at, reason, error_message
            from ${schema}.dead_letter where message_id = asked.id offset 0) as letter
        where letter.origin = 'outbox' and letter.closed_at is null`,
    ),
    forget: defineStatement(
      "sagabox.requests.forget",
      `delete from ${schema}.reply
        where ctid = any(array(
          select ctid from ${schema}.reply
           where arrived_at < (select clock_timestamp()) - $1::double precision * interval '1 ms'
           limit $2::integer
             for update skip locked))`,
    ),
  };
}
