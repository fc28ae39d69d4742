-- Answers to requests, kept for whoever waits for them, in whichever process that is.
create table {schema}.reply (
  request_id  text        primary key check (request_id <> '' and length(request_id) <= 255),
  outcome     text        not null check (outcome in ('done', 'failed')),
  body        text        not null,
  arrived_at  timestamptz not null default clock_timestamp()
);

create index reply_arrived_at on {schema}.reply (arrived_at);
