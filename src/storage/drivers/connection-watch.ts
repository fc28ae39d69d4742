import { SagaboxError } from "../../errors/index.ts";
import { after, systemClock, yieldToEventLoop, type CancelTimer } from "../../runtime/index.ts";
import { cancelStatement } from "./cancel-statement.ts";
import type { PgClient, UsedPool } from "./pg-shape.ts";

/** How many milliseconds a discarded connection may take to end before its socket is destroyed. */
const MAX_TERMINATE_MS = 1_000;

const NO_TIMER: CancelTimer = () => undefined;

/**
 * Watches the connections of one pool for answers. A statement that is not answered by its deadline means that its
 * connection hangs: a stuck pooler, a paused server, a network that drops packets without a word. The connection is
 * destroyed, never given back. Connections that have not answered since are suspect and are replaced before their next
 * use, so that each of them does not cost a deadline of its own.
 */
export class ConnectionWatch {
  readonly #answeredAtMs = new WeakMap<PgClient, number>();
  readonly #connected = new Set<PgClient>();
  #suspectBeforeMs = -Infinity;

  /** Connections made by the pool since it is watched, and not removed from it. */
  get connected(): ReadonlySet<PgClient> {
    return this.#connected;
  }

  add(client: PgClient): void {
    this.#connected.add(client);
    this.noteAnswer(client);
  }

  remove(client: PgClient): void {
    this.#connected.delete(client);
  }

  noteAnswer(client: PgClient): void {
    this.#answeredAtMs.set(client, systemClock.monotonicMs());
  }

  /** Whether the connection has not answered since another one was found to hang. */
  isSuspect(client: PgClient): boolean {
    if (this.#suspectBeforeMs === -Infinity) return false;
    return (this.#answeredAtMs.get(client) ?? -Infinity) < this.#suspectBeforeMs;
  }

  /**
   * Starts the deadline of a statement that is about to be sent; the result ends it. When it passes, `fail` gets the
   * error, the server is asked to cancel the statement, and the socket is destroyed, which fails every other statement on this
   * connection.
   */
  expectAnswer(
    client: PgClient,
    deadlineMs: number,
    what: string,
    fail: (error: Error) => void,
  ): CancelTimer {
    if (deadlineMs === Infinity) return NO_TIMER;
    const sentMs = systemClock.monotonicMs();
    let isOver = false;
    let dueMs = sentMs + deadlineMs;
    let cancel = NO_TIMER;
    const start = (): void => {
      cancel = after(deadlineMs, () => void check());
    };
    const check = async (): Promise<void> => {
      // While this process stood still it could not read the answer, which may be there by now: the time starts again.
      // So it does while a long answer is still arriving.
      const isLate = systemClock.monotonicMs() > dueMs + deadlineMs / 10;
      const bytesBefore = client.connection?.stream?.bytesRead;
      await yieldToEventLoop();
      await yieldToEventLoop();
      if (isOver) return;
      if (isLate || client.connection?.stream?.bytesRead !== bytesBefore) {
        dueMs = systemClock.monotonicMs() + deadlineMs;
        return start();
      }
      isOver = true;
      this.#suspectBeforeMs = Math.max(this.#suspectBeforeMs, sentMs);
      fail(noAnswerError(what, deadlineMs));
      cancelStatement(client);
      client.connection?.stream?.destroy?.();
    };
    start();
    return () => {
      isOver = true;
      cancel();
    };
  }
}

function noAnswerError(what: string, deadlineMs: number): SagaboxError {
  return new SagaboxError(
    "STORAGE_UNAVAILABLE",
    `The database did not answer ${what} within ${deadlineMs} ms. Its connection was closed and is replaced. ` +
      "If this happens again, look at the network and the pooler, and in pg_stat_activity for locks and slow statements.",
  );
}

const watches = new WeakMap<UsedPool, ConnectionWatch>();

/**
 * The watch of a pool, one for as long as the pool lives. Listens to its errors too: without a listener, Node would end
 * the process over an idle connection that broke, and over one that breaks before its borrower listens to it.
 */
export function watchPool(pool: UsedPool): ConnectionWatch {
  const known = watches.get(pool);
  if (known !== undefined) return known;
  const watch = new ConnectionWatch();
  watches.set(pool, watch);
  pool.on("error", () => undefined);
  pool.on("remove", (client) => watch.remove(client));
  pool.on("connect", (client) => {
    client.on("error", () => undefined);
    watch.add(client);
  });
  return watch;
}

/** Discards a connection that may hang: closes its socket immediately, without a Terminate message. */
export function destroyClient(client: PgClient): void {
  client.connection?.stream?.destroy?.();
  client.release(true);
}

/** Ends a connection that must not be reused. Sends a Terminate message, but does not wait long for the server. */
export function endClient(client: PgClient): void {
  const { stream } = client.connection ?? {};
  client.release(true);
  if (stream?.destroyed !== false) return;
  const cancel = after(MAX_TERMINATE_MS, () => stream.destroy?.(), { unref: true });
  stream.once?.("close", cancel);
}
