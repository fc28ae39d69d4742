/** An outbox or queue row of a message. */
export interface MovingRow {
  /** Null in the outbox. */
  readonly consumer: string | null;
  readonly lane: number;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly lastError: string | null;
  readonly dueAt: string | null;
  readonly isDue: boolean;
  /** True for a dead-lettered message that blocks its key until an operator decides. */
  readonly isHeld: boolean;
  /** True while the process that wrote the message sends it itself after its commit. */
  readonly isOptimistic: boolean;
  /** The worker that owns its lane; null if none does. */
  readonly owner: string | null;
  /** The first waiting message of its key; null if this is the first. */
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
  /** Consumers that subscribed to its topic in this database. Consumers of a broker are not known here. */
  readonly subscribers: readonly { readonly name: string; readonly since: string }[];
  /** True if any subscription exists here, so that PostgreSQL is the transport. */
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
