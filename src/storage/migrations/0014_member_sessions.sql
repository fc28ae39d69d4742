-- Which process a member belongs to, where that runs, and the session of the server it speaks through. A process that was killed
-- is known by that to others on its machine, which then need not wait until its lease is over.
alter table {schema}.member
  add column process text,
  add column place   text,
  add column backend integer;
