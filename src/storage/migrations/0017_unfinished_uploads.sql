-- A blob has its row before its first byte is stored, so that the collector can tell an upload from an orphan.

-- Null until an upload of unknown content is complete.
alter table {schema}.blob alter column sha256 drop not null;

create index blob_unfinished on {schema}.blob (stored_at) where sha256 is null and doomed_at is null;
