-- What may be seen without the payloads.
select 1;
