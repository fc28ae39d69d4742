-- What the conservation check needs to prove that nothing was lost.

-- Which of the rows a receipt names were sent again, by a replay or from the archive: their numbers stand in no message.
-- Null where an older version wrote the receipt, which says nothing about it.
alter table {schema}.receipt
  add column again_seqs bigint[],
  add column again_ids  text[];

-- How far the check has come, what it found, and for how long things are kept here. One row; one process at a time works
-- on it, under a lease.
create table {schema}.conservation (
  only_row        boolean          not null primary key default true check (only_row),
  claimed_by      text,
  claimed_until   timestamptz,
  dead_letter_ms  double precision check (dead_letter_ms > 0),
  archive_ms      double precision check (archive_ms > 0),
  state           json             not null default '{}',
  checked_at      timestamptz,
  check ((claimed_by is null) = (claimed_until is null))
);
insert into {schema}.conservation (only_row) values (true);
revoke all on {schema}.conservation from public;
