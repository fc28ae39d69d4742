import type { Queryable } from "../storage/index.ts";
import { outboxStatements } from "./outbox/statements.ts";

/** True when the role of this connection may read keys and error texts; a viewer may not. `schema` is quoted already. */
export async function canReadContents(database: Queryable, schema: string): Promise<boolean> {
  const { rows } = await database.run<{ open: boolean }>(outboxStatements(schema).open);
  return rows[0]?.open === true;
}
