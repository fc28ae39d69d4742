-- The paths of declared flows: which event was seen under which correlation id, from whom and because of what.
create table {schema}.flow_event (
  flow            text        not null,
  message_id      text        not null,
  correlation_id  text        not null,
  type            text        not null,
  causation_id    text,
  source          text        not null,
  key             text,
  happened_at     timestamptz not null, -- by the publisher's database
  recorded_at     timestamptz not null default clock_timestamp(),
  open            boolean     not null default true, -- false once its path was found finished
  primary key (flow, message_id)
);

create index flow_event_correlation on {schema}.flow_event (correlation_id, flow);
create index flow_event_open on {schema}.flow_event (flow, recorded_at) where open;
create index flow_event_age on {schema}.flow_event (recorded_at);
