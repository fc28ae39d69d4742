-- A consumer that is gone for good can be retired: its subscriptions and what waits for it go, and nothing of anybody else.

-- When a subscription of a topic was last retired. What was published before had its consumer, so the next one that takes over
-- commands nobody has claimed begins here, and not with what was carried out long ago.
create table {schema}.retired_subscription (
  topic       text        not null primary key,
  retired_at  timestamptz not null default clock_timestamp()
);

-- For whoever decides about messages; the right to delete such rows at all would let them take away what others wait for.
-- Answers nothing, and does nothing, while a member of the group lives. What was handled and what died stay as they are; a
-- dead letter whose replay was still waiting is given up with it, and says so.
create function {schema}.retire_consumer(in_group integer) returns table (subscriptions integer, deliveries integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select 1 from {schema}.member where scope = in_group and lease_until > clock_timestamp()) then
    return;
  end if;
  return query
  with unsubscribed as (
    delete from {schema}.subscription where group_id = in_group returning topic
  ), noted as (
    insert into {schema}.retired_subscription (topic)
    select topic from unsubscribed
    on conflict (topic) do update set retired_at = excluded.retired_at
  ), removed as (
    delete from {schema}.queue as row
     where row.lane between in_group * 256 and in_group * 256 + 255
    returning row.message_id
  ), given_up as (
    update {schema}.dead_letter as letter set closed_as = 'discarded'
      from {schema}.consumer_group as own
     where own.id = in_group and letter.consumer = own.name and letter.closed_as = 'replayed'
       and letter.message_id in (select message_id from removed)
       and not exists (select 1 from {schema}.consumer_inbox as inbox
                        where inbox.consumer = letter.consumer and inbox.event_id = letter.message_id)
  )
  select (select count(*)::integer from unsubscribed), (select count(*)::integer from removed);
end
$$;

revoke all on {schema}.retired_subscription from public;
revoke all on function {schema}.retire_consumer(integer) from public;
