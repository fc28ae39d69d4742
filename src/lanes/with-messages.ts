import { textArray, type Queryable, type Statement } from "../storage/index.ts";
import { messageOf, type LaneRow } from "./lane-row.ts";

/** The rows with the messages they stand for; a row whose message is gone keeps null. */
export async function withMessages(
  session: Queryable,
  statement: Statement,
  rows: readonly LaneRow[],
): Promise<LaneRow[]> {
  const days = rows.map((row) => row.writtenOn).toSorted();
  const { rows: found } = await session.run<{ message: string }>(statement, [
    textArray(rows.map((row) => row.messageId)),
    days[0] ?? "",
    days.at(-1) ?? "",
  ]);
  return join(
    rows,
    found.map((raw) => raw.message),
  );
}

/** Each row with its message, in the copy of the day that the row names; it expires when the row says so. */
export function join(rows: readonly LaneRow[], packed: readonly string[]): LaneRow[] {
  const byName = new Map(packed.map((text) => [nameOf(text), text]));
  return rows.map((row) => {
    const text = byName.get(`${row.messageId}\u001f${row.writtenOn}`);
    if (text === undefined) return row;
    const message = messageOf(text);
    return { ...row, message: row.expiresAt === null ? message : { ...message, expiresAt: row.expiresAt } };
  });
}

function nameOf(text: string): string {
  return text.slice(0, text.indexOf("\u001f", text.indexOf("\u001f") + 1));
}
