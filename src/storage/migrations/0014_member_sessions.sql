-- Which process a member belongs to, and the session of the server it speaks through. When all sessions of a process have ended
-- and it does not come back, the process has ended too, and its lanes need not wait until its lease is over.
alter table {schema}.member
  add column process text,
  add column backend integer;
