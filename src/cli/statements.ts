import { defineStatement } from "../storage/index.ts";

/** Counts client connections to the server other than this one. */
export const otherClients = defineStatement(
  "sagabox.dev.other_clients",
  `select count(*)::int as count
     from pg_stat_activity
    where backend_type = 'client backend' and pid <> pg_backend_pid()`,
);
