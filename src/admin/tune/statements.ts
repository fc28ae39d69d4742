import { defineStatement } from "../../storage/index.ts";

/** The scratch schema. `schema` is quoted already. */
export function scratchStatements(schema: string) {
  return {
    // All lanes under one claim, so that settling pays for its locks as it does in a relay.
    own: defineStatement(
      "sagabox.tune.own",
      `update ${schema}.relay_lane set owner = 'tune', token = 'tune', fence = 1, leased_at = clock_timestamp() where scope = 0`,
    ),
    empty: defineStatement(
      "sagabox.tune.empty",
      `truncate ${schema}.outbox, ${schema}.message, ${schema}.receipt`,
    ),
    drop: defineStatement("sagabox.tune.drop", `drop schema if exists ${schema} cascade`),
  };
}

export const serverStatements = {
  mayCreate: defineStatement(
    "sagabox.tune.may_create",
    `select has_database_privilege(current_database(), 'create') as allowed, current_user as user_name,
            coalesce(inet_client_addr() <<= any(array['127.0.0.0/8'::inet, '::1'::inet]), true) as local,
            current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer as usable`,
  ),
};
