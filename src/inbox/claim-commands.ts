import { decodeJson, type Json } from "../message/index.ts";
import { toArrayLiteral, type OwnedTransaction } from "../storage/index.ts";
import type { InboxEngine } from "./engine.ts";
import type { Receipt } from "./receive-once.ts";
import type { Earlier } from "./references.ts";

type Claim = Pick<Receipt, "consumer" | "id" | "topic" | "type" | "payload" | "expiresAt">;

/** An earlier command that was carried out. */
export interface CommandEffect {
  readonly id: string;
  /** What its handler answered, as it is kept. */
  readonly stored: string | null;
  readonly result: Json | undefined;
}

/**
 * The dedupe rows of a command and of those it refers to, in one statement. Earlier ones that have not been seen are
 * settled by it without effect, so that they are duplicates when they come; for one that runs right now it waits. False
 * when the command itself was seen before, or is too late.
 */
export async function claimCommands(
  tx: OwnedTransaction,
  { sql }: InboxEngine,
  { consumer, id, topic, type, payload, expiresAt }: Claim,
  earlier: readonly (Earlier | undefined)[],
): Promise<boolean> {
  const others = earlier.flatMap((one) => one?.ids.map((other) => ({ ...one, id: other })) ?? []);
  const { rows } = await tx.run<{ event_id: string }>(sql.claim, [
    consumer,
    id,
    topic,
    type,
    payload,
    expiresAt,
    toArrayLiteral(others.map((other) => other.id)),
    toArrayLiteral(others.map((other) => other.topic)),
    toArrayLiteral(others.map((other) => other.type)),
  ]);
  return rows.some((row) => row.event_id === id);
}

/** The effect that one of these has had and that still stands, as of now: asked after they were claimed. */
export async function findEffect(
  tx: OwnedTransaction,
  { sql }: InboxEngine,
  consumer: string,
  { ids }: Earlier,
): Promise<CommandEffect | undefined> {
  const { rows } = await tx.run<{ id: string; result: string | null }>(sql.effectOf, [
    consumer,
    toArrayLiteral(ids),
  ]);
  const [found] = rows;
  if (found === undefined) return undefined;
  const result = found.result === null ? undefined : decodeJson(found.result);
  return { id: found.id, stored: found.result, result };
}
