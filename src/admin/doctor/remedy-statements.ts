/** What a person may paste into psql. None of it is run by the doctor. */
export const remedies = {
  logged: (table: string) => `alter table ${table} set logged;`,
  vacuumAgain: (table: string) => `alter table ${table} reset (autovacuum_enabled);`,
  vacuumSettings: (table: string) =>
    `alter table ${table} set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);`,
  commitSafely: (database: string, user: string) =>
    `alter database "${database}" set synchronous_commit = on; -- or: alter role "${user}" reset synchronous_commit;`,
  dropSlot: (slot: string) => `select pg_drop_replication_slot('${slot}');`,
  endSession: (pid: number) =>
    `select pg_terminate_backend(${pid}); -- and set idle_in_transaction_session_timeout for that user`,
  readStatistics: (user: string) =>
    `grant pg_read_all_stats to "${user.replaceAll('"', '""')}"; -- as a superuser, or run the doctor as one who has it`,
} as const;
