import { statement } from "../storage/index.ts";

export type PrivacyStatements = ReturnType<typeof privacyStatements>;

/** SQL of keys and erasures. `schema` is quoted already. */
export function privacyStatements(schema: string) {
  return {
    // Made by this very transaction, it may still be rolled back: such a key is used, and kept by nobody.
    keyOf: statement(
      "sagabox.privacy.key_of",
      `select key_id, subject, wrapped, kek_id,
              coalesce(created_xid = pg_current_xact_id_if_assigned(), false) as own
         from ${schema}.subject_key
        where subject = $1::text and wrapped is not null
        order by created_at desc limit 1`,
    ),
    addKey: statement(
      "sagabox.privacy.add_key",
      `insert into ${schema}.subject_key (key_id, subject, wrapped, kek_id)
       values ($1::text, $2::text, $3::text, $4::text)`,
    ),
    keys: statement(
      "sagabox.privacy.keys",
      `select key_id, subject, wrapped, kek_id, false as own from ${schema}.subject_key
        where key_id = any($1::text::text[])`,
    ),
  };
}
