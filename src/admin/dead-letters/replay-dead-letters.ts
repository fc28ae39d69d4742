import type { By } from "../../audit/index.ts";
import { closingDetails } from "../../dead-letter/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { laneFor, streamFor } from "../../message/index.ts";
import { toArrayLiteral, type OwnedTransaction } from "../../storage/index.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";
import type { InFlightReplay } from "./outcome.ts";

/** A letter as a page of a replay names it. */
export interface Candidate {
  readonly id: string;
  readonly message_id: string;
  readonly topic: string;
  readonly key: string | null;
  readonly place: string;
  readonly written_at: string;
  /** For an earlier letter of its key. */
  readonly waits: boolean;
}

export interface ClosedRow {
  readonly id: string;
  readonly origin: "outbox" | "consumer";
  readonly consumer: string | null;
  readonly message_id: string;
  readonly type: string;
  readonly topic: string;
  readonly reason: Parameters<typeof closingDetails>[0]["reason"];
  readonly attempts: number;
  readonly error_message: string;
  readonly traceparent: string;
  readonly fingerprint: string;
  readonly held_lane: number | null;
  readonly held_seq: string | null;
  readonly lane: number;
  readonly stream: string | null;
}

interface ReplayedRow {
  readonly message_id: string;
  readonly lane: number;
  readonly seq: string;
}

/**
 * Replays those of the letters whose turn it is, in one transaction with their lines in the audit log. The others, whose
 * key waits for an earlier letter or which somebody else has closed, are left as they are.
 */
export async function replayDeadLetters(
  admin: DeadLetterAdmin,
  candidates: readonly Pick<Candidate, "id" | "message_id" | "topic" | "key">[],
  by: By,
): Promise<readonly InFlightReplay[]> {
  const { store, sql } = admin;
  const tx = await store.database.begin();
  try {
    const { rows } = await tx.run<ClosedRow>(sql.closeInOrder, [
      toArrayLiteral(candidates.map(({ id }) => id)),
      toArrayLiteral(candidates.map(({ key, message_id: id }) => laneFor(key ?? id))),
      toArrayLiteral(candidates.map(({ key, topic }) => (key === null ? null : streamFor(topic, key)))),
    ]);
    const flights = rows.length === 0 ? [] : await putBack(tx, admin, rows);
    await store.audit.recordAllDone(
      tx,
      rows.map((row) => toAuditEntry(row, "replay", by)),
    );
    await tx.commit();
    await admin.wake(flights.map(({ lane }) => lane));
    return flights;
  } catch (error) {
    await tx.rollback();
    throw error;
  }
}

/** The line of the audit log for one of many. */
export function toAuditEntry(row: Omit<ClosedRow, "lane" | "stream">, action: "replay" | "discard", by: By) {
  const details = closingDetails(
    { ...row, messageId: row.message_id },
    action === "replay" ? "replayed" : "discarded",
  );
  return { ...by, ...details, action: `dead_letter.${action}`, target: { kind: "dead_letter", id: row.id } };
}

async function putBack(
  tx: OwnedTransaction,
  { sql }: DeadLetterAdmin,
  rows: readonly ClosedRow[],
): Promise<readonly InFlightReplay[]> {
  const holding = rows.filter((row) => row.held_lane !== null);
  const rearmed =
    holding.length === 0
      ? []
      : (await tx.run<{ id: string }>(sql.rearm, [toArrayLiteral(holding.map(({ id }) => id))])).rows;
  const inPlace = new Set(rearmed.map(({ id }) => id));
  const rest = rows.filter((row) => !inPlace.has(row.id));
  const kept = await tx.run<{ id: string; written_on: string }>(sql.keep, [
    toArrayLiteral(rest.map(({ id }) => id)),
    toArrayLiteral(rest.map(({ lane }) => lane)),
    toArrayLiteral(rest.map(({ stream }) => stream)),
  ]);
  const days = new Map(kept.rows.map((row) => [row.id, row.written_on]));
  const place = async (origin: ClosedRow["origin"]): Promise<readonly InFlightReplay[]> => {
    const own = rest.filter((row) => row.origin === origin);
    if (own.length === 0) return [];
    const placed = await tx.run<ReplayedRow>(origin === "outbox" ? sql.send : sql.deliver, [
      toArrayLiteral(own.map(({ id }) => id)),
      toArrayLiteral(own.map(({ lane }) => lane)),
      toArrayLiteral(own.map(({ stream }) => stream)),
      toArrayLiteral(own.map(({ id }) => days.get(id) ?? null)),
    ]);
    // Rolls everything back: a letter must not be closed without its message being anywhere.
    if (placed.rows.length < own.length) throw unroutable(own[0]?.consumer ?? "");
    const places = new Map(placed.rows.map((row) => [row.message_id, row]));
    return own.flatMap((row) => {
      const at = places.get(row.message_id);
      return at === undefined ? [] : [toInFlightReplay(row, origin === "outbox" ? "outbox" : "queue", at)];
    });
  };
  const held = rows
    .filter((row) => inPlace.has(row.id))
    .map((row) => toInFlightReplay(row, "outbox", { lane: row.held_lane ?? 0, seq: row.held_seq ?? "0" }));
  return [...held, ...(await place("outbox")), ...(await place("consumer"))];
}

function unroutable(consumer: string): SagaboxError {
  return new SagaboxError(
    "TRANSPORT_UNROUTABLE",
    `No worker of consumer "${consumer}" has ever read from the tables of this database, so nothing was replayed to it. ` +
      "Start the consumer once.",
  );
}

function toInFlightReplay(
  row: ClosedRow,
  line: InFlightReplay["line"],
  { lane, seq }: Pick<ReplayedRow, "lane" | "seq">,
): InFlightReplay {
  const { id, stream, fingerprint, error_message: errorMessage } = row;
  return { id, line, lane, seq, stream, fingerprint, errorMessage };
}
