-- A message that is sent again goes in front of the newer messages of its key that still wait. Order inside a key is seq, and
-- a relay may have passed any number that was drawn before: so the newer ones are numbered anew, behind the one sent again.

-- Until the transaction ends no other session writes to the outbox, and every session that has written to it has committed or
-- rolled back: a number drawn by an open transaction could otherwise place a newer message in front. The first lock stops no
-- publisher. It waits for maintenance and for other republishes, long enough for the server to cancel an autovacuum that is in
-- the way (deadlock_timeout). The second lock stops publishers while it waits, so that wait is short. The transaction id is
-- taken before any number is drawn, as in every writer.
create function {schema}.outbox_keep_writers_out(maintenance_ms integer, writers_ms integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform set_config('lock_timeout', maintenance_ms || 'ms', true);
  lock table {schema}.outbox in share update exclusive mode;
  perform set_config('lock_timeout', writers_ms || 'ms', true);
  perform pg_current_xact_id();
  lock table {schema}.outbox in share row exclusive mode;
end
$$;
revoke all on function {schema}.outbox_keep_writers_out(integer, integer) from public;

-- The messages are named by their ids and days; sent_days says which copy is sent, where a message was edited. The caller gives
-- all messages of a key in one call, so the rows of the key that wait are numbered anew once. A row that its writer is sending
-- right now keeps its place. A row that holds its key for a dead letter moves like any other.
create function {schema}.outbox_send_again(ids text[], days date[], sent_days date[]) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  sent integer;
begin
  with given as materialized (
    select message.id, message.lane::integer as lane, message.stream, message.topic, message.type, wanted.sent_on,
           message.priority, message.max_attempts, message.seq as origin
      from unnest(ids, days, sent_days) as wanted (id, written_on, sent_on)
     cross join lateral (
       select * from {schema}.message as kept
        where kept.id = wanted.id and kept.written_on = wanted.written_on offset 0
     ) as message
  ), earliest as materialized (
    select lane, stream, min(origin) as origin from given where stream is not null group by lane, stream
  ), waiting as materialized (
    select row.lane, row.seq, earliest.origin as earliest_origin,
           case when row.again
                then coalesce(
                  (select nullif(message.seq, 0) from {schema}.message
                    where message.id = row.message_id and message.written_on = row.written_on),
                  (select max(message.seq) from {schema}.message where message.id = row.message_id),
                  row.seq)
                else row.seq end as origin
      from earliest
      join {schema}.outbox as row on row.lane = earliest.lane and row.stream = earliest.stream
     where row.lease_until is null or row.lease_until <= clock_timestamp()
  ), behind as (
    delete from {schema}.outbox as row using waiting
     where row.lane = waiting.lane and row.seq = waiting.seq
       and waiting.origin > waiting.earliest_origin
    returning row.*, waiting.origin
  ), numbered as materialized (
    select sorted.*, nextval('{schema}.outbox_seq') as new_seq
      from (select lane, null::bigint as old_seq, stream, topic, type, id as message_id, sent_on as written_on, priority,
                   0::smallint as attempts, max_attempts, clock_timestamp() as due_at, null::timestamptz as expires_at,
                   null::text as last_error, origin
              from given
             union all
            select lane, seq, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at,
                   expires_at, last_error, origin
              from behind
             order by origin) as sorted
  ), placed as (
    insert into {schema}.outbox
           (again, lane, seq, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at, expires_at,
            last_error)
    select true, lane, new_seq, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at,
           expires_at, last_error
      from numbered
  ), held as (
    update {schema}.dead_letter as letter set held_seq = numbered.new_seq
      from numbered
     where numbered.due_at = 'infinity' and letter.held_lane = numbered.lane and letter.held_seq = numbered.old_seq
       and letter.message_id = numbered.message_id and letter.closed_at is null
  )
  select count(*)::integer into sent from given;
  return sent;
end
$$;
revoke all on function {schema}.outbox_send_again(text[], date[], date[]) from public;
