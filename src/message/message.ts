export type MessageKind = "event" | "command" | "stream";

/** Headers set by the caller; names are lower case. */
export type Headers = Readonly<Record<string, string>>;

/**
 * A message as it is stored and sent. The data stays JSON text from the publisher's transaction to the
 * handler.
 */
export interface Message {
  readonly id: string;
  readonly kind: MessageKind;
  /** Name of the contract. */
  readonly type: string;
  readonly schemaVersion: number;
  readonly topic: string;
  /** Messages with one key keep their order; messages without a key (null) have none. */
  readonly key: string | null;
  readonly data: string;
  readonly headers: Headers;
  readonly correlationId: string;
  readonly causationId: string | null;
  readonly traceparent: string;
  readonly sagaId: string | null;
  readonly aggregateType: string | null;
  readonly aggregateId: string | null;
  /** The service that published it. */
  readonly source: string;
  /** The service a command is for. */
  readonly target: string | null;
  /** 0 to 9, 9 is most urgent. */
  readonly priority: number;
  /** ISO 8601 in UTC, with up to microseconds. */
  readonly writtenAt: string;
  readonly expiresAt: string | null;
}
