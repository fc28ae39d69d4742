-- What a consumer must know of a command it has seen so that a saga can repeat it or take it back.
-- effect: false when nothing was done for it, be it refused, or settled before it came.
-- effect_of: the earlier command whose effect counts for this one too. undone_by: the command that took it back.
alter table {schema}.consumer_inbox
  add column effect boolean not null default true,
  add column effect_of text,
  add column undone_by text;

-- Not validated: the rows that are there have the defaults, and a large table need not be read for it.
alter table {schema}.consumer_inbox
  add constraint consumer_inbox_effect_of check (effect or effect_of is null) not valid,
  add constraint consumer_inbox_undone_by check (effect and effect_of is null or undone_by is null) not valid;
