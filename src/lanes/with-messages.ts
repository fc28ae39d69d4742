import { textArray, type Queryable, type Statement } from "../storage/index.ts";
import { messageOf, type LaneRow, type RawMessage } from "./lane-row.ts";

/** The rows with the messages they stand for; a row whose message is gone keeps null. */
export async function withMessages(
  session: Queryable,
  statement: Statement,
  rows: readonly LaneRow[],
): Promise<LaneRow[]> {
  const days = rows.map((row) => row.writtenOn).toSorted();
  const { rows: found } = await session.run<RawMessage>(statement, [
    textArray(rows.map((row) => row.messageId)),
    days[0] ?? "",
    days.at(-1) ?? "",
  ]);
  const byId = new Map(found.map((raw) => [raw.id, raw]));
  return rows.map((row) => {
    const raw = byId.get(row.messageId);
    return raw === undefined ? row : { ...row, message: messageOf(raw, row.expiresAt) };
  });
}
