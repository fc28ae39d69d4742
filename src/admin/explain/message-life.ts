/** A row that moves a message to somewhere: to the transport, or to one consumer. */
export interface MovingRow {
  /** Null in the outbox. */
  readonly consumer: string | null;
  readonly lane: number;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly lastError: string | null;
  readonly dueAt: string | null;
  readonly isDue: boolean;
  /** A dead head that holds its key until a person decides. */
  readonly isHeld: boolean;
  /** Leased to the process that wrote it, which sends it right after its commit. */
  readonly isOptimistic: boolean;
  /** The worker that owns its lane, where one does. */
  readonly owner: string | null;
  /** The first message of its key, where that is another one. */
  readonly ahead: AheadRow | null;
}

export interface AheadRow {
  readonly messageId: string;
  readonly attempts: number;
  readonly lastError: string | null;
  readonly dueAt: string | null;
  readonly isHeld: boolean;
}

export interface DeadLetterRow {
  readonly id: string;
  readonly origin: "outbox" | "consumer";
  readonly consumer: string | null;
  readonly reason: string;
  readonly attempts: number;
  readonly errorType: string;
  readonly errorMessage: string;
  readonly failedAt: string;
  readonly closedAt: string | null;
  readonly closedAs: string | null;
}

export interface InboxRow {
  readonly consumer: string;
  readonly consumedAt: string;
  readonly durationMs: number | null;
  readonly effect: boolean;
  readonly effectOf: string | null;
  readonly undoneBy: string | null;
}

export interface MessageFacts {
  readonly id: string;
  readonly kind: string;
  readonly type: string;
  readonly schemaVersion: number;
  readonly topic: string;
  readonly key: string | null;
  readonly source: string;
  readonly priority: number;
  readonly sagaId: string | null;
  readonly correlationId: string;
  readonly causationId: string | null;
  readonly traceId: string;
  readonly bytes: number;
  readonly isClaimChecked: boolean;
  readonly isEncrypted: boolean;
  readonly writtenAt: string;
  readonly expiresAt: string | null;
  readonly scheduledFor: string | null;
  readonly lane: number | null;
}

/** Everything the database knows about one message. */
export interface MessageLife {
  readonly message: MessageFacts;
  readonly outbox: readonly MovingRow[];
  readonly sent: readonly { readonly relay: string; readonly at: string }[];
  readonly deliveries: readonly MovingRow[];
  /** Who subscribed to its topic in this database. Consumers behind a broker are not seen from here. */
  readonly subscribers: readonly { readonly name: string; readonly since: string }[];
  /** Whether anybody subscribed to anything here: then PostgreSQL carries the messages. */
  readonly hasSubscriptions: boolean;
  readonly handled: readonly InboxRow[];
  readonly deadLetters: readonly DeadLetterRow[];
  readonly saga: {
    readonly id: string;
    readonly type: string;
    readonly status: string;
    readonly step: string | null;
  } | null;
  readonly actions: readonly {
    readonly at: string;
    readonly actor: string;
    readonly action: string;
    readonly reason: string | null;
    readonly outcome: string;
  }[];
}
