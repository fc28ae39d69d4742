import { createHmac, timingSafeEqual } from "node:crypto";
import type { Pool } from "pg";
import { createBus, type Bus, type DeadLetterNotice } from "sagabox";

// #region notify
export function notifyingBus(database: Pool, notify: (notice: DeadLetterNotice) => void, url: string): Bus {
  return createBus({
    service: "guide",
    database,
    log: false,
    onDeadLetter: notify,
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

// #region groups
export async function causes(bus: Bus): Promise<string[]> {
  const { groups } = await bus.deadLetters.groups();
  return groups.map(({ fingerprint, open, label }) => `${fingerprint} ${open} × ${label}`);
}
// #endregion groups

// #region replay
export async function replayAll(bus: Bus, consumer: string): Promise<number> {
  const by = { actor: "ann", reason: "fixed in 2.4.1" };
  const { verdict, handled, groups } = await bus.deadLetters.replayAll({ consumer }, { ...by, rate: 100 });
  if (verdict !== "done") console.error(groups.map(({ label, why }) => `${label}: ${why ?? "done"}`));
  return handled;
}
// #endregion replay

// #region discard
export async function discard(bus: Bus, id: string): Promise<void> {
  await bus.deadLetters.discard(id);
}
// #endregion discard
