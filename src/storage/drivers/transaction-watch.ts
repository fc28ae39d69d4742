import type { PgClient } from "./pg-shape.ts";

interface CommandComplete {
  /** The command tag, such as "INSERT 0 1" or "ROLLBACK". */
  readonly text?: string;
}

interface TaggedConnection {
  on(event: "commandComplete", listener: (completed: CommandComplete) => void): unknown;
  removeListener(event: "commandComplete", listener: (completed: CommandComplete) => void): unknown;
}

/** How statements that bypassed `tx` have changed the transaction of a connection. */
export type Interference = "rolled back" | "committed" | "prepared" | "savepoint";

/** Whether the driver shows the command tags of all statements on this connection. */
export function canWatch(client: PgClient): boolean {
  return findTaggedConnection(client) !== undefined;
}

/**
 * Watches the command tags of a connection from BEGIN on. Every end of a transaction has a tag, also when other code sent the
 * statement: also `ROLLBACK AND CHAIN`, after which the connection is in a transaction again. Costs the server nothing.
 */
export class TransactionWatch {
  readonly #client: PgClient;
  readonly #takeExpected: (tag: string) => boolean;
  #interference: Interference | undefined;

  /** `takeExpected` says whether a statement in flight by our own doing has this tag of a savepoint. Each counts once. */
  constructor(client: PgClient, takeExpected: (tag: string) => boolean) {
    this.#client = client;
    this.#takeExpected = takeExpected;
    findTaggedConnection(client)?.on("commandComplete", this.#onComplete);
  }

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
        // Inside a transaction it is only a warning. Outside, a COMMIT that failed has ended ours without a tag.
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

  // A commit cannot be undone by what happened before or after it.
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
