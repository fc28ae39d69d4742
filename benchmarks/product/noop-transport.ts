import type { Message } from "../../src/message/index.ts";
import type { PublishOutcome, Transport } from "../../src/transport/index.ts";

export interface NoopOptions {
  /** Whether a batch may hold several messages of one key, as with a broker that keeps order. Default true. */
  readonly failsLaterOfKey?: boolean;
  /** How long each message takes, one after the other. Default 0. */
  readonly latencyMs?: number;
  /** Called with each batch at the moment it would leave the process. */
  readonly onPublish?: (batch: readonly Message[]) => void | Promise<void>;
}

const PUBLISHED: PublishOutcome = Object.freeze({ kind: "published" });

/** A broker that takes everything at once: what is left is the cost of getting messages to it. */
export function noopTransport(options: NoopOptions = {}): Transport {
  const { latencyMs = 0, onPublish } = options;
  return {
    name: "noop",
    capabilities: {
      ordersByKey: true,
      ordersRetries: true,
      failsLaterOfKey: options.failsLaterOfKey ?? true,
      delaysRedelivery: false,
      keepsUnrouted: true,
      rejectsUnrouted: false,
      replays: true,
      replaysFromTime: true,
      reportsLag: false,
      maxBytes: 1_048_576,
    },
    open: () => Promise.resolve(),
    close: () => Promise.resolve(),
    async publish(batch) {
      const held = onPublish?.(batch);
      if (held !== undefined) await held;
      if (latencyMs > 0) await new Promise((resolve) => setTimeout(resolve, latencyMs * batch.length));
      return batch.map(() => PUBLISHED);
    },
    subscribe: () => Promise.reject(new Error("nothing comes back from this transport")),
  };
}
