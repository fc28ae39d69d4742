import { toArrayLiteral, type Queryable, type Statement } from "../storage/index.ts";
import { isWhole, messageFor, packedMessages, type LaneRow } from "./lane-row.ts";

/** The rows with the messages they stand for; a row whose message is gone keeps null. */
async function withMessages(
  session: Queryable,
  statement: Statement,
  rows: readonly LaneRow[],
): Promise<LaneRow[]> {
  const days = rows.map((row) => row.writtenOn).toSorted();
  const { rows: found } = await session.run<{ messages: string }>(statement, [
    toArrayLiteral(rows.map((row) => row.messageId)),
    days[0] ?? "",
    days.at(-1) ?? "",
  ]);
  const messages = packedMessages(found);
  return rows.map((row) => ({ ...row, ...messageFor(row, messages) }));
}

/** Those that came without their message get it by a statement of its own. */
export async function loadMessages(
  session: Queryable,
  statement: Statement,
  rows: LaneRow[],
): Promise<LaneRow[]> {
  if (rows.every(isWhole)) return rows;
  const bare = rows.filter((row) => !isWhole(row));
  const found = await withMessages(session, statement, bare);
  return rows.map((row) => (isWhole(row) ? row : (found.shift() ?? row)));
}

/** A message that did not come along with its row for its size has at least as many characters. */
const LARGE = 2_700;

export function isLarge({ message }: LaneRow): boolean {
  return message !== null && message.data.length + JSON.stringify(message.headers).length >= LARGE;
}
