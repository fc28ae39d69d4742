-- Keys of persons, and what was erased.
select 1;
