-- The view of the outbox tells of a discarded dead letter that it died, as long as its letter is kept, instead of that it was
-- sent; and it shows the headers with the four that are filled in when a message travels. What nothing caused is its own cause
-- there. Columns, rights and the views over it stay.
create or replace view {schema}.outbox_events as
select m.id as event_id, m.saga_id, m.aggregate_type, m.aggregate_id, m.type as event_type,
       m.data::json as payload,
       (m.headers::jsonb || jsonb_build_object(
         'trace_id', substr(m.traceparent, 4, 32), 'message_id', m.id,
         'causation_id', coalesce(m.causation_id, m.id), 'correlation_id', m.correlation_id))::json as headers,
       case
         when d.id is not null and d.closed_at is null then 'dead_letter'
         when o.seq is null and d.id is not null and r.sent_at is null then 'dead_letter'
         when o.seq is null then 'sent'
         when o.lease_until > clock_timestamp() then 'optimistic'
         when o.attempts > 0 and o.due_at > clock_timestamp() then 'failed'
         when l.owner is not null and o.due_at <= clock_timestamp() then 'claimed'
         when o.attempts > 0 then 'failed'
         else 'pending'
       end as status,
       m.topic as routing_key, m.key as partition_key, m.topic,
       coalesce(o.attempts, d.attempts, 0) as attempts, m.max_attempts::smallint as max_attempts,
       m.priority::smallint as priority,
       coalesce(o.due_at, m.written_at) as available_at, m.expires_at, m.written_at as created_at,
       case when o.seq is not null and l.owner is not null then l.leased_at end as claimed_at,
       r.sent_at as published_at, coalesce(o.last_error, d.error_message) as last_error,
       m.correlation_id, m.causation_id, m.traceparent
  from {schema}.message m
  left join lateral (
    select own.* from {schema}.outbox own where own.lane = m.lane and own.seq = m.seq
    union all
    select resent.* from {schema}.outbox resent where resent.again and resent.message_id = m.id
    limit 1
  ) o on true
  left join lateral (
    select lane.owner, lane.leased_at
      from {schema}.relay_lane lane
      join {schema}.member on member.id = lane.owner and member.lease_until > clock_timestamp()
     where lane.lane = m.lane
  ) l on true
  left join lateral (
    -- The last word counts: what was replayed after it had been discarded lives.
    select last.* from (
      select dead.id, dead.attempts, dead.error_message, dead.closed_at, dead.closed_as
        from {schema}.dead_letter dead
       where dead.message_id = m.id and dead.origin = 'outbox'
       order by dead.closed_at desc nulls first, dead.id desc
       limit 1
    ) last
     where last.closed_as is distinct from 'replayed'
  ) d on true
  left join lateral (
    select receipt.sent_at
      from {schema}.receipt
     where receipt.lane = m.lane and receipt.last_seq >= m.seq and receipt.first_seq <= m.seq
       and m.seq = any(receipt.seqs)
     order by receipt.last_seq desc
     limit 1
  ) r on o.seq is null
union all
select s.id, s.saga_id, s.aggregate_type, s.aggregate_id, s.type, s.data::json,
       (s.headers::jsonb || jsonb_build_object(
         'trace_id', substr(s.traceparent, 4, 32), 'message_id', s.id,
         'causation_id', coalesce(s.causation_id, s.id), 'correlation_id', s.correlation_id))::json,
       'pending', s.topic, s.key, s.topic, 0, s.max_attempts, s.priority, s.due_at, s.expires_at, s.written_at,
       null, null, null, s.correlation_id, s.causation_id, s.traceparent
  from {schema}.scheduled s;
