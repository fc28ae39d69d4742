import { Loop, type Service } from "../runtime/index.ts";
import type { AfterCommitStatement, Database, Session } from "./database.ts";
import { NOTIFY, PING } from "./statements.ts";

const KEEP_ALIVE_MS = 15_000;

export interface NotificationsOptions {
  readonly database: Database;
  readonly channel: string;
  readonly hear: (payload: string) => void;
  /** Called when the connection is back after a loss. Notifications sent in between were missed. */
  readonly onGap: () => void;
  readonly onError: (error: unknown) => void;
  /** Interval in milliseconds of the check that the idle connection still answers. Default 15,000. */
  readonly keepAliveMs?: number;
}

/** LISTEN on a dedicated connection that reconnects after a loss. Notifications are only hints: polling finds every row. */
export class Notifications implements Service {
  readonly #options: NotificationsOptions;
  readonly #loop: Loop;
  #session: Session | undefined;
  #hasListen = false;

  constructor(options: NotificationsOptions) {
    this.#options = options;
    this.#loop = new Loop({ step: () => this.#listen(), onError: options.onError, maxBackoffMs: 5_000 });
  }

  get listening(): boolean {
    return this.#hasListen && this.#session?.broken === false;
  }

  async start(): Promise<void> {
    await this.#loop.start();
  }

  async stop(): Promise<void> {
    await this.#loop.stop();
    this.#session?.release();
    this.#session = undefined;
  }

  // A connection that only listens does not show that it hangs, so it is checked at intervals.
  async #listen(): Promise<number> {
    const { keepAliveMs = KEEP_ALIVE_MS } = this.#options;
    if (this.listening) {
      await this.#session?.run(PING);
      return keepAliveMs;
    }
    this.#session?.release(true);
    this.#hasListen = false;
    const session = await this.#options.database.session("listen");
    this.#session = session; // also when listening fails: it is given back before the next try
    session.onBreak(() => this.#loop.wake());
    await session.listen(this.#options.channel, ({ payload }) => this.#options.hear(payload));
    this.#hasListen = true;
    this.#options.onGap();
    return keepAliveMs;
  }
}

/**
 * Sends a notification. Never call it inside a business transaction: a NOTIFY there serializes all commits of the server.
 */
export async function notify(database: Database, channel: string, payload: string): Promise<void> {
  const { statement, params } = notifyStatement(channel, payload);
  await (database.runImmediately?.(statement, params) ?? database.run(statement, params));
}

/** A notification to be sent after a COMMIT. */
export function notifyStatement(
  channel: string,
  payload: string,
): Pick<AfterCommitStatement, "statement" | "params"> {
  return { statement: NOTIFY, params: [channel, payload] };
}
