import type { Bus } from "sagabox";

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
