import type { Queryable } from "../storage/index.ts";
import type { Seal } from "./chain.ts";
import type { AuditStatements } from "./statements.ts";

/** The seals that were made together, over one range of transactions. */
export interface Round {
  readonly seals: readonly Seal[];
  /** The seal behind it is not the next one. */
  readonly gapBehind: boolean;
}

const PAGE = 20;

/** All seals behind that one in order, by their rounds. Holds no more than a page of them. */
export async function* readRounds(
  database: Queryable,
  sql: AuditStatements,
  behind = "0",
): AsyncGenerator<Round> {
  let open: Seal[] = [];
  for await (const seal of readSeals(database, sql, behind)) {
    const last = open.at(-1);
    if (last !== undefined && !isSameRange(last, seal)) {
      yield { seals: open, gapBehind: BigInt(seal.number) !== BigInt(last.number) + 1n };
      open = [];
    }
    open.push(seal);
  }
  if (open.length > 0) yield { seals: open, gapBehind: false };
}

async function* readSeals(database: Queryable, sql: AuditStatements, behind: string): AsyncGenerator<Seal> {
  for (let after = behind; ;) {
    const { rows } = await database.run<Seal>(sql.seals, [after, PAGE]);
    yield* rows;
    const last = rows.at(-1);
    if (last === undefined || rows.length < PAGE) return;
    after = last.number;
  }
}

/** Pure. Whether two seals were made together. */
export function isSameRange(one: Seal, other: Seal): boolean {
  return one.chain === other.chain && one.xid_from === other.xid_from && one.xid_to === other.xid_to;
}
