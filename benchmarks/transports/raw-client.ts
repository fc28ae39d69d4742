import { toWire } from "../../src/transport/index.ts";
import { orderMessage } from "../product/order-message.ts";

/** A message as the broker's own client is given it. */
export interface RawMessage {
  readonly id: string;
  readonly key: string;
  readonly body: Buffer;
}

/**
 * What the client does for a message. `same`: what the product has confirmed, i.e. its headers and properties, by the
 * way through its exchanges, subjects or partitions. `bare`: a body and an id into one place.
 */
export type RawWork = "same" | "bare";

/** A place at the broker, used by its client and nothing else: the limit of what a transport can reach. */
export interface RawClient {
  /** All but sending is done when it returns. What it returns sends them, until each is confirmed and stored. */
  prepare(messages: readonly RawMessage[], inFlight: number): () => Promise<void>;
  /** One, until it is confirmed; many may be asked for at once. */
  publishOne(message: RawMessage): Promise<void>;
  /** Receives messages and acknowledges each at once; reports every message. Ends after `count` messages. */
  consume(count: number, prefetch: number, received: () => void): Promise<void>;
  /** Removes what was published, so that the next contender finds the broker empty. */
  empty(): Promise<void>;
  close(): Promise<void>;
}

const pattern = toWire(orderMessage(0)).headers;
const idHeaders = Object.keys(pattern).filter((name) => pattern[name] === orderMessage(0).id);

/** The headers that the product sends with a message of this id. */
export function createHeaders(id: string): Record<string, string> {
  const headers = { ...pattern };
  for (const name of idHeaders) headers[name] = id;
  return headers;
}

/** Keeps this many publishes in flight until all are confirmed. */
export async function runWindowed<T>(
  items: readonly T[],
  width: number,
  send: (item: T) => Promise<void>,
): Promise<void> {
  const rest = items.values();
  const workers = Array.from({ length: width }, async () => {
    for (const item of rest) await send(item);
  });
  await Promise.all(workers);
}
