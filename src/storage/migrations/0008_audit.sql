-- The audit log.
select 1;
