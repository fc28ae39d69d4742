/** A message as the broker's own client is given it. */
export interface RawMessage {
  readonly id: string;
  readonly key: string;
  readonly body: Buffer;
}

/** A place at the broker, used by its client and nothing else: the limit of what a transport can reach. */
export interface RawClient {
  /** Confirmed and stored, all of them, with no more than so many unconfirmed. */
  publish(messages: readonly RawMessage[], inFlight: number): Promise<void>;
  /** One, until it is confirmed; many may be asked for at once. */
  publishOne(message: RawMessage): Promise<void>;
  /** Receives what is there and acknowledges each at once; told of every message. Ends after so many. */
  consume(count: number, prefetch: number, received: () => void): Promise<void>;
  close(): Promise<void>;
}

/** Keeps so many publishes on their way until all are confirmed. */
export async function windowed<T>(
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
