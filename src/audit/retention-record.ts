import { toArrayLiteral, type Queryable } from "../storage/index.ts";
import { chainBegin, type Finding, type Link } from "./findings.ts";
import { judgeRetentionLine, type RetentionLine, type RetentionRecord } from "./retention-line.ts";
import { logTables, type AuditStatements, type LogName } from "./statements.ts";

/** What the lines about dropped months say, as far as they can be believed. */
export interface Retention extends RetentionRecord {
  /** Lines that say what cannot be: nobody but the upkeep should write such lines. */
  readonly findings: readonly Finding[];
}

/** Far more than the months that are kept have. */
const MAX_LINES = 1_000;

/**
 * What all lines together say that can be believed. Those that cannot are named and legitimise nothing; and none can take
 * back what another one says, since what was dropped stays so.
 */
export async function readRetention(
  database: Queryable,
  sql: AuditStatements,
  schema: string,
): Promise<Retention> {
  const { rows } = await database.run<RetentionLine>(sql.retentionLines, [MAX_LINES]);
  if (rows.length === 0) return { dropped: [], anchor: chainBegin, findings: [] };
  const named = rows.map(({ target_id: name }) => name ?? "");
  const left = await listTablesLeft(database, sql, schema, named);
  const begins = await findChainStart(database, sql);
  const judged = rows.map((line) => judgeRetentionLine(line, { left, begins }));
  const records = judged.flatMap((one) => ("record" in one ? [one.record] : []));
  const months = new Map(
    records.flatMap(({ dropped }) => dropped.map((one) => [`${one.log} ${one.month}`, one])),
  );
  return {
    dropped: [...months.values()],
    anchor: records.map(({ anchor }) => anchor).reduce(laterLink, chainBegin),
    findings: judged.flatMap((one) => ("finding" in one ? [one.finding] : [])),
  };
}

// None that is believed lies behind where the chain begins, so the latest is the one that leads there.
function laterLink(one: Link, other: Link): Link {
  return BigInt(other.number) > BigInt(one.number) ? other : one;
}

/**
 * Whether a month without rows was dropped by the upkeep. It drops the table of a month whole; one that is there and empty
 * was emptied by somebody else, whatever a line says.
 */
export async function wasDropped(
  database: Queryable,
  sql: AuditStatements,
  schema: string,
  { log, month }: { readonly log: LogName; readonly month: string },
): Promise<boolean> {
  const { dropped } = await readRetention(database, sql, schema);
  if (!dropped.some((one) => one.log === log && one.month === month)) return false;
  const table = `${logTables[log]}_${month.slice(0, 4)}${month.slice(5, 7)}`;
  return (await listTablesLeft(database, sql, schema, [table])).size === 0;
}

/** What the first seal that is left follows. Undefined while there is none. */
async function findChainStart(database: Queryable, sql: AuditStatements): Promise<Link | undefined> {
  const [first] = (await database.run<{ number: string; previous_hash: string }>(sql.firstSeal)).rows;
  if (first === undefined) return undefined;
  return { number: (BigInt(first.number) - 1n).toString(), hash: first.previous_hash };
}

async function listTablesLeft(
  database: Queryable,
  sql: AuditStatements,
  schema: string,
  names: readonly string[],
): Promise<ReadonlySet<string>> {
  const { rows } = await database.run<{ name: string }>(sql.tablesLeft, [schema, toArrayLiteral([...names])]);
  return new Set(rows.map(({ name }) => name));
}
