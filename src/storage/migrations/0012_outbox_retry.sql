-- Whoever decides about messages may have one tried at once that failed before, and nothing else of its row: the right to
-- change the time itself would let them put a message off for ever.
create function {schema}.outbox_retry_now(wanted text) returns table (retried_lane integer, was_due timestamptz, tried integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  return query
  with place as materialized (
    select message.lane::integer as lane, message.seq from {schema}.message where message.id = wanted
    union
    select again.lane, again.seq from {schema}.outbox as again where again.again and again.message_id = wanted
  ), failed as materialized (
    select row.lane, row.seq, row.due_at, row.attempts
      from place join {schema}.outbox as row on row.lane = place.lane and row.seq = place.seq
     where row.message_id = wanted and row.attempts > 0
       and row.due_at > clock_timestamp() and row.due_at < 'infinity'
       for update of row
  ), retried as (
    update {schema}.outbox as row set due_at = clock_timestamp()
      from failed
     where row.lane = failed.lane and row.seq = failed.seq
    returning row.lane, row.seq
  )
  select failed.lane, failed.due_at, failed.attempts::integer
    from failed join retried on retried.lane = failed.lane and retried.seq = failed.seq;
end
$$;
revoke all on function {schema}.outbox_retry_now(text) from public;
