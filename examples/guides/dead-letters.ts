import { createHmac, timingSafeEqual } from "node:crypto";
import type { Pool } from "pg";
import { createBus, type Bus, type DeadLetterNotice } from "sagabox";

// #region notify
export function tellingBus(database: Pool, tell: (notice: DeadLetterNotice) => void, url: string): Bus {
  return createBus({
    service: "guide",
    database,
    log: false,
    onDeadLetter: tell,
    notify: { webhook: { url, secret: "at least sixteen characters" } },
  });
}
// #endregion notify

// #region verify
/** What a receiver does with the header `sagabox-signature` and the body as it came. */
export function isGenuine(header: string, body: string, secret: string, nowMs = Date.now()): boolean {
  const [, seconds = "", given = ""] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(header) ?? [];
  const digest = createHmac("sha256", secret).update(`${seconds}.${body}`).digest("hex");
  const fresh = Math.abs(nowMs / 1000 - Number(seconds)) < 300;
  return given !== "" && fresh && timingSafeEqual(Buffer.from(given), Buffer.from(digest));
}
// #endregion verify

// #region list
export async function report(bus: Bus): Promise<string[]> {
  const letters = await bus.deadLetters.list({ open: true, limit: 20 });
  return letters.map(
    ({ id, consumer, type, reason, errorMessage }) =>
      `${id} ${consumer ?? "outbox"} ${type}: ${reason}, ${errorMessage}`,
  );
}
// #endregion list

// #region show
export async function look(bus: Bus, id: string): Promise<string> {
  const { original_message: message, dlq_metadata: why } = await bus.deadLetters.show(id);
  return `${message.type} ${message.data} failed ${why.retry_count} times, last with ${why.error_type}`;
}
// #endregion show

// #region replay
export async function replayAll(bus: Bus, consumer: string): Promise<number> {
  const letters = await bus.deadLetters.list({ open: true, consumer, limit: 100 });
  for (const { id } of letters.toReversed()) await bus.deadLetters.replay(id); // oldest first
  return letters.length;
}
// #endregion replay

// #region discard
export async function discard(bus: Bus, id: string): Promise<void> {
  await bus.deadLetters.discard(id);
}
// #endregion discard
