-- breaking: sessions that are open meanwhile keep prepared statements whose answers had other types; stop whatever publishes or works before it.
-- What may stand in the columns that every publish writes, as types of their own: PostgreSQL reads the CHECKs of a table again
-- for each statement, which was a third of what a publish cost it, and those of a type once in a session. No table is
-- rewritten or read, since what is there was checked before; the partial indexes of what is still to be sent are built anew. An id
-- is checked where it is to be sent; in the archive it would take its index along.

-- First without conditions: a column that gets such a type is not read.
create domain {schema}.message_id as text;
create domain {schema}.message_kind as text;
create domain {schema}.message_lane as smallint;
create domain {schema}.message_priority as smallint;
create domain {schema}.payload_version as integer;
create domain {schema}.attempt_count as smallint;
create domain {schema}.attempt_limit as smallint;
create domain {schema}.outbox_lane as integer;

-- The views over these columns are taken away for a moment and come back as they were, with their rights.
do $$
declare
  kept jsonb := (
    select jsonb_agg(jsonb_build_object(
             'name', format('%I.%I', space.nspname, seen.relname), 'owner', seen.relowner::regrole::text,
             'options', array_to_string(seen.reloptions, ', '), 'body', pg_get_viewdef(seen.oid),
             'comment', obj_description(seen.oid, 'pg_class'),
             'rights', (select jsonb_agg(jsonb_build_object(
                                 'what', given.privilege_type || given.columns, 'grantable', given.is_grantable,
                                 'whom', case given.grantee when 0 then 'public' else given.grantee::regrole::text end))
                          from (select '' as columns, whole.* from aclexplode(seen.relacl) as whole
                                union all
                                select format(' (%I)', attname), part.*
                                  from pg_attribute cross join lateral aclexplode(attacl) as part
                                 where attrelid = seen.oid) as given
                         where given.grantee <> seen.relowner))
             order by array_position(array['outbox_events', 'masked_outbox_events', 'masked_message', 'masked_outbox'], seen.relname::text))
      from pg_class as seen
      join pg_namespace as space on space.oid = seen.relnamespace
     where seen.relnamespace = '{schema}'::regnamespace and seen.relkind = 'v'
       and seen.relname in ('outbox_events', 'masked_outbox_events', 'masked_message', 'masked_outbox'));
  each jsonb;
  given jsonb;
  stranger text;
begin
  drop view {schema}.masked_outbox_events, {schema}.outbox_events, {schema}.masked_message, {schema}.masked_outbox;

  alter table {schema}.message
    drop constraint message_id_check,
    drop constraint message_kind_check,
    drop constraint message_lane_check,
    drop constraint message_max_attempts_check,
    drop constraint message_priority_check,
    drop constraint message_schema_version_check,
    alter kind type {schema}.message_kind,
    alter lane type {schema}.message_lane,
    alter max_attempts type {schema}.attempt_limit,
    alter priority type {schema}.message_priority,
    alter schema_version type {schema}.payload_version;
  alter table {schema}.outbox
    drop constraint outbox_attempts_check,
    drop constraint outbox_lane_check,
    drop constraint outbox_max_attempts_check,
    drop constraint outbox_priority_check,
    alter attempts type {schema}.attempt_count,
    alter lane type {schema}.outbox_lane,
    alter max_attempts type {schema}.attempt_limit,
    alter message_id type {schema}.message_id,
    alter priority type {schema}.message_priority;

  -- Both halves of outbox_events have the same types, or nothing could be looked for in one of them alone.
  for each in select * from jsonb_array_elements(kept) loop
    execute format('create view %s %s as %s', each ->> 'name',
                   case when each ->> 'options' <> '' then format('with (%s)', each ->> 'options') else '' end,
                   replace(replace(each ->> 'body', ' m.max_attempts,', ' m.max_attempts::smallint as max_attempts,'),
                           ' m.priority,', ' m.priority::smallint as priority,'));
    execute format('alter view %s owner to %s', each ->> 'name', each ->> 'owner');
    if each ->> 'comment' is not null then
      execute format('comment on view %s is %L', each ->> 'name', each ->> 'comment');
    end if;
    -- What is granted to everything new was not meant for these.
    for stranger in
      select distinct case acl.grantee when 0 then 'public' else acl.grantee::regrole::text end
        from pg_class as made cross join lateral aclexplode(made.relacl) as acl
       where made.oid = (each ->> 'name')::regclass and acl.grantee <> made.relowner
    loop
      execute format('revoke all on %s from %s', each ->> 'name', stranger);
    end loop;
    for given in select * from jsonb_array_elements(coalesce(nullif(each -> 'rights', 'null'), '[]')) loop
      execute format('grant %s on %s to %s%s', given ->> 'what', each ->> 'name', given ->> 'whom',
                     case when (given ->> 'grantable')::boolean then ' with grant option' else '' end);
    end loop;
  end loop;
end
$$;

alter domain {schema}.message_id add check (value <> '' and length(value) <= 255) not valid;
alter domain {schema}.message_kind add check (value in ('event', 'command', 'stream')) not valid;
alter domain {schema}.message_lane add check (value between 0 and 255) not valid;
alter domain {schema}.message_priority add check (value between 0 and 9) not valid;
alter domain {schema}.payload_version add check (value >= 1) not valid;
alter domain {schema}.attempt_count add check (value >= 0) not valid;
alter domain {schema}.attempt_limit add check (value >= 1) not valid;
alter domain {schema}.outbox_lane add check (value between 0 and 255) not valid;

-- Answers with a plain number, as before.
create or replace function {schema}.outbox_retry_now(wanted text) returns table (retried_lane integer, was_due timestamptz, tried integer)
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
  select failed.lane::integer, failed.due_at, failed.attempts::integer
    from failed join retried on retried.lane = failed.lane and retried.seq = failed.seq;
end
$$;

-- New types have no statistics.
analyze {schema}.outbox;
