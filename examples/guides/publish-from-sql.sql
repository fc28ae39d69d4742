create table guide_sql_order (id text primary key, cents integer not null);

-- #region trigger
create function announce_order() returns trigger language plpgsql as $$
begin
  perform sagabox.publish(
    type => 'guide.order.placed',
    key  => new.id, -- messages with the same key keep their order
    data => jsonb_build_object('orderId', new.id, 'cents', new.cents)
  );
  return null;
end
$$;

create trigger announce_order after insert on guide_sql_order
  for each row execute function announce_order();
-- #endregion trigger

-- #region session
begin;
insert into guide_sql_order (id, cents) values ('from-psql', 1250); -- the trigger publishes
select sagabox.publish(
  type    => 'guide.order.placed',
  key     => 'delayed',
  data    => '{"orderId": "delayed", "cents": 200}',
  headers => '{"tenant": "a"}',
  delay   => interval '15 minutes'
);
commit;
-- #endregion session

-- #region wake
select sagabox.wake_relays();
-- #endregion wake

-- #region many
insert into guide_sql_order (id, cents) select 'import-' || n, 100 from generate_series(1, 3) as n;
select sagabox.publish(
         type => 'guide.order.placed',
         key  => id,
         data => jsonb_build_object('orderId', id, 'cents', cents),
         id   => 'import:' || id -- a second run writes nothing
       )
  from guide_sql_order
 where id like 'import-%'
 order by id;
-- #endregion many
