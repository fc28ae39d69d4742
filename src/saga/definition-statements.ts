import { defineStatement } from "../storage/index.ts";

/** Statements on the stored saga definitions and on the instances that began with them. */
export function definitionStatements(schema: string) {
  return {
    readDefinitions: defineStatement(
      "sagabox.saga.read_definitions",
      `select saga_type as type, version, hash, structure::text as structure from ${schema}.saga_definition
        where saga_type || '/' || version = any($1::text::text[])`,
    ),
    // The first worker that registers a version stores it. Later workers find the row and insert nothing.
    addDefinition: defineStatement(
      "sagabox.saga.add_definition",
      `insert into ${schema}.saga_definition (saga_type, version, hash, structure)
       values ($1::text, $2::integer, $3::text, $4::text::json)
       on conflict (saga_type, version) do nothing
       returning saga_type as type`,
    ),
    replaceDefinition: defineStatement(
      "sagabox.saga.replace_definition",
      `update ${schema}.saga_definition
          set hash = $3::text, structure = $4::text::json, registered_at = clock_timestamp()
        where saga_type = $1::text and version = $2::integer and hash = $5::text`,
    ),
    // Reads at most 100,000 unfinished instances. Instances beyond the limit are parked when a worker moves them. The row
    // without a path counts all instances. Records with an open incident are left out: an operator decides about them.
    unfitRecords: defineStatement(
      "sagabox.saga.unfit_records",
      `with unfinished as (
         select id, state from ${schema}.saga_instance
          where saga_type = $1::text and definition_version = $2::integer and completed_at is null limit 100000),
       begun as (
         select distinct unfinished.id, split_part(record.key, '@', 1) as path
           from unfinished
          cross join lateral json_each(unfinished.state -> 'records') as record
          where (record.value ->> 'status' = 'in_progress'
                 or record.value ->> 'outcome' in ('done', 'unknown')
                    and record.value ->> 'status' not in ('skipped', 'compensated'))
            and record.value #>> '{undo,status}' is distinct from 'failed'
            and unfinished.state -> 'mismatches' -> record.key is null)
       select path, count(distinct id)::integer as instances from begun
        where path <> all($3::text::text[])
        group by grouping sets ((path), ())
       having count(*) > 0
        order by path nulls first`,
    ),
    // Encrypted instances: the database cannot read their records, so the worker decrypts and compares them.
    encryptedUnfinished: defineStatement(
      "sagabox.saga.encrypted_unfinished",
      `select id from ${schema}.saga_instance
        where saga_type = $1::text and definition_version = $2::integer and completed_at is null
          and state -> '$sealed' is not null
        limit 1000`,
    ),
    countUnfinished: defineStatement(
      "sagabox.saga.count_unfinished",
      `select count(*)::integer as count
         from (select 1 from ${schema}.saga_instance
                where saga_type = $1::text and definition_version = $2::integer and completed_at is null limit 100000) as open`,
    ),
  };
}
