import { defineStatement } from "../storage/index.ts";

/** Programs other than this one that are connected to the server. */
export const otherClients = defineStatement(
  "sagabox.dev.other_clients",
  `select count(*)::int as count
     from pg_stat_activity
    where backend_type = 'client backend' and pid <> pg_backend_pid()`,
);
