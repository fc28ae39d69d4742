import type { PgClient } from "./pg-shape.ts";

interface CommandComplete {
  /** The command tag, such as "INSERT 0 1" or "ROLLBACK". */
  readonly text?: string;
}

interface TaggedConnection {
  on(event: "commandComplete", listener: (completed: CommandComplete) => void): unknown;
  removeListener(event: "commandComplete", listener: (completed: CommandComplete) => void): unknown;
}

/** How statements that other code sent directly on the connection have changed our transaction. */
export type Interference = "rolled back" | "committed" | "prepared" | "savepoint";

/** Returns true if the driver reports the command tags of all statements on this connection. */
export function canWatch(client: PgClient): boolean {
  return findTaggedConnection(client) !== undefined;
}

/**
 * Detects statements of other code that end our transaction or use savepoints. It reads the command tags that the server
 * sends after each statement, so it needs no extra queries. It also detects `ROLLBACK AND CHAIN`, after which the connection
 * is in a transaction again.
 */
export class TransactionWatch {
  readonly #client: PgClient;
  readonly #takeExpected: (tag: string) => boolean;
  #interference: Interference | undefined;

  /**
   * `takeExpected` is called with the tag of a savepoint statement. It returns true if one of our own statements in flight
   * produces this tag, and then no longer expects it.
   */
  constructor(client: PgClient, takeExpected: (tag: string) => boolean) {
    this.#client = client;
    this.#takeExpected = takeExpected;
    findTaggedConnection(client)?.on("commandComplete", this.#onComplete);
  }

  /** The interference to report; undefined if there was none. */
  get interference(): Interference | undefined {
    return this.#interference;
  }

  stop(): void {
    findTaggedConnection(this.#client)?.removeListener("commandComplete", this.#onComplete);
  }

  readonly #onComplete = ({ text = "" }: CommandComplete): void => {
    switch (text) {
      case "COMMIT":
        return this.#recordInterference("committed");
      case "PREPARE TRANSACTION":
        return this.#recordInterference("prepared");
      case "BEGIN":
      case "START TRANSACTION":
        // Inside our transaction, a second BEGIN only raises a warning. If no transaction was open, a COMMIT by other code
        // failed before it: a failed COMMIT has no tag and rolls back.
        if (this.#client.getTransactionStatus() === "I") this.#recordInterference("rolled back");
        return;
      case "ROLLBACK": // also the tag of ROLLBACK TO SAVEPOINT
        if (!this.#takeExpected(text)) this.#recordInterference("rolled back");
        return;
      case "SAVEPOINT":
      case "RELEASE":
        if (!this.#takeExpected(text)) this.#recordInterference("savepoint");
    }
  };

  // A commit is final, so later interference does not replace it. A commit does replace earlier interference.
  #recordInterference(interference: Interference): void {
    if (this.#interference === "committed" || this.#interference === "prepared") return;
    this.#interference = interference;
  }
}

function findTaggedConnection({ connection }: PgClient): TaggedConnection | undefined {
  const { on, removeListener } = (connection ?? {}) as Partial<TaggedConnection>;
  const isTagged = typeof on === "function" && typeof removeListener === "function";
  return isTagged ? (connection as TaggedConnection) : undefined;
}
