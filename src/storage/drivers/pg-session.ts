import type { Notification, Param, Rows, RunLimits, Session } from "../database.ts";
import { explainReadOnly, sessionSurvives } from "../postgres-errors.ts";
import type { Statement } from "../statement.ts";
import { runStatementInTime, runTextInTime } from "./send-query.ts";
import { cancelStatement } from "./cancel-statement.ts";
import { destroyClient, endClient, type ConnectionWatch } from "./connection-watch.ts";
import type { PgClient, PgResult } from "./pg-shape.ts";
import { setConfig } from "./statements.ts";

/** Our statements lock what they decide about and look again; a role whose default is stricter would make them fail. */
const ISOLATION = { default_transaction_isolation: "read committed" };

/** One connection with settings of its own, whose statements are sent one behind the other. */
export class PgSession implements Session {
  readonly #client: PgClient;
  readonly #breakListeners: (() => void)[] = [];
  readonly #watch: ConnectionWatch;
  readonly #deadlineMs: number;
  readonly #pipelined: boolean;
  #last: Promise<unknown> = Promise.resolve();
  #open = 0;
  #isBroken = false;
  #released = false;

  constructor(client: PgClient, watch: ConnectionWatch, deadlineMs: number) {
    this.#client = client;
    this.#watch = watch;
    this.#deadlineMs = deadlineMs;
    this.#pipelined = client.pipeline !== undefined;
    if (this.#pipelined) client.pipeline = true; // what is asked meanwhile leaves at once, and the server goes on with it
    client.on("error", () => this.#markBroken());
    client.on("end", () => this.#markBroken());
  }

  get broken(): boolean {
    return this.#isBroken || (this.#open === 0 && this.#watch.isSuspect(this.#client));
  }

  async configure(settings: Readonly<Record<string, string>>): Promise<void> {
    for (const [name, value] of Object.entries({ ...ISOLATION, ...settings }))
      await this.run(setConfig, [name, value]);
  }

  async run<R>(
    statement: Statement,
    params: readonly Param[] = [],
    { deadlineMs = this.#deadlineMs }: RunLimits = {},
  ): Promise<Rows<R>> {
    const send = (): Promise<PgResult> =>
      runStatementInTime(this.#client, this.#watch, { statement, params, deadlineMs });
    // A driver that does not pipeline no longer wants to queue either: there one after the other.
    const sent = this.#pipelined || this.#open === 0 ? send() : this.#last.then(send);
    this.#open += 1;
    this.#last = sent.catch(() => undefined);
    try {
      const result = await sent;
      return { rows: result.rows as R[], rowCount: result.rowCount ?? 0, command: result.command };
    } catch (error) {
      if (!sessionSurvives(error)) this.#markBroken();
      throw explainReadOnly(error);
    } finally {
      this.#open -= 1;
    }
  }

  async listen(channel: string, hear: (notification: Notification) => void): Promise<void> {
    this.#client.on("notification", (message) => {
      if (message.channel === channel) hear({ channel, payload: message.payload ?? "" });
    });
    const text = `listen "${channel.replaceAll('"', "")}"`;
    await runTextInTime(this.#client, this.#watch, text, { deadlineMs: this.#deadlineMs }).catch(
      (error: unknown) => {
        if (!sessionSurvives(error)) this.#markBroken();
        throw error;
      },
    );
  }

  onBreak(told: () => void): void {
    this.#breakListeners.push(told);
  }

  // Its settings are not the pool's, so the connection ends with the session.
  release(destroy = false): void {
    if (this.#released) return;
    this.#released = true;
    if (this.#pipelined) this.#client.pipeline = false; // or it would wait for its queries before it ends
    if (this.#open > 0 && !this.#isBroken) cancelStatement(this.#client);
    if (destroy || this.#isBroken || this.#open > 0) destroyClient(this.#client);
    else endClient(this.#client);
  }

  #markBroken(): void {
    if (this.#isBroken) return;
    this.#isBroken = true;
    for (const told of this.#breakListeners) if (!this.#released) told();
  }
}
