import { sqlState } from "../postgres-errors.ts";
import type { LibraryClient } from "./library.ts";

interface CommandComplete {
  readonly text?: string;
}

interface TaggedConnection {
  on(event: "commandComplete", listener: (completed: CommandComplete) => void): unknown;
  removeListener(event: "commandComplete", listener: (completed: CommandComplete) => void): unknown;
}

/** Follows the command tags of a library's transaction on its connection, until its end. */
export class TagLog {
  readonly #connection: TaggedConnection;
  #isClean = true;
  #isEnding = false;
  #lastEnd: "COMMIT" | "ROLLBACK" | undefined;

  constructor(connection: TaggedConnection) {
    this.#connection = connection;
    connection.on("commandComplete", this.#onComplete);
  }

  /** False if a statement may have ended the transaction. `ROLLBACK` is also the tag of `ROLLBACK TO SAVEPOINT`. */
  get isClean(): boolean {
    return this.#isClean;
  }

  /** How the server answered the end that sagabox requested. */
  get lastEnd(): "COMMIT" | "ROLLBACK" | undefined {
    return this.#lastEnd;
  }

  /** Called before the library is asked to commit: the next COMMIT or ROLLBACK is its own. */
  expectEnd(): void {
    this.#isEnding = true;
  }

  /** Stops following: the connection goes back to the pool of the library. */
  stop(): void {
    this.#connection.removeListener("commandComplete", this.#onComplete);
  }

  readonly #onComplete = ({ text = "" }: CommandComplete): void => {
    const isEnd = text === "COMMIT" || text === "ROLLBACK";
    if (!isEnd && text !== "PREPARE TRANSACTION") return;
    if (!this.#isEnding) {
      this.#isClean = false;
      return;
    }
    if (isEnd) this.#lastEnd = text;
    this.stop();
  };
}

/** Undefined if the library hides its client, or the client hides the answers of the server. */
export function tagsOf(client: LibraryClient | undefined): TagLog | undefined {
  const { on, removeListener } = (client?.connection ?? {}) as Partial<TaggedConnection>;
  const isTagged = typeof on === "function" && typeof removeListener === "function";
  return isTagged ? new TagLog(client?.connection as TaggedConnection) : undefined;
}

/** Walks from an error through its causes. Libraries wrap the error of the server in one of their own. */
export function findCause(error: unknown, matches: (cause: unknown) => boolean): unknown {
  let current = error;
  for (let depth = 0; depth < 8; depth++) {
    if (matches(current)) return current;
    if (typeof current !== "object" || current === null) return undefined;
    const { cause, driverError } = current as { readonly cause?: unknown; readonly driverError?: unknown };
    current = cause ?? driverError;
  }
  return undefined;
}

/** Returns the error of the server inside an error of a library, or the error itself. */
export function unwrapError(error: unknown): unknown {
  return findCause(error, (cause) => sqlState(cause) !== undefined) ?? error;
}

interface ReadyForQuery {
  readonly status?: string;
}

interface ObservableConnection {
  on(event: "readyForQuery", listener: (message: ReadyForQuery) => void): unknown;
  removeListener(event: "readyForQuery", listener: (message: ReadyForQuery) => void): unknown;
}

/**
 * Calls the listener when the open transaction of a `pg` client ends, by COMMIT or by ROLLBACK. Returns false if the client
 * does not report the end.
 */
export function onClientTransactionEnd(client: LibraryClient | undefined, listener: () => void): boolean {
  const connection = client?.connection as Partial<ObservableConnection> | undefined;
  if (typeof connection?.on !== "function" || typeof connection.removeListener !== "function") return false;
  if (client?.getTransactionStatus() !== "T") return false;
  const observable = connection as ObservableConnection;
  const onReady = ({ status }: ReadyForQuery): void => {
    if (status !== "I") return; // not idle: the transaction is still open
    observable.removeListener("readyForQuery", onReady);
    listener();
  };
  observable.on("readyForQuery", onReady);
  return true;
}
