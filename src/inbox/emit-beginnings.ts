import type { Observer } from "../telemetry/index.ts";
import type { Beginning } from "../transport/index.ts";

/** A consumer that hears nothing of what was published before it came would otherwise look broken. */
export function emitBeginnings(
  observer: Observer,
  consumer: string,
  begun: readonly Beginning[] | undefined,
): void {
  for (const { topic, from } of begun ?? []) {
    observer.emit("consumer.began", {
      consumer,
      topic,
      from: typeof from === "object" ? from.time.toISOString() : from,
    });
  }
}
