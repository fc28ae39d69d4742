import { SUPERUSER } from "./data-folder.ts";
import { launchServer, stopServer, type ServerPlan } from "./server-process.ts";

/** "fast" ends sessions and writes everything down; "immediate" is a crash: the next start has to recover. */
export type StopMode = "fast" | "immediate";

const STOP_TIMEOUT_MS = 60_000;

/** A running server and what one may do with it. */
export class EmbeddedPostgres {
  readonly dataDir: string;
  readonly logFile: string;
  readonly port: number;
  /** For any PostgreSQL client; contains the password. */
  readonly url: string;
  /** True when the server was already running, left by another process or an earlier start. */
  readonly reused: boolean;
  readonly #plan: ServerPlan;
  #pid: number;

  constructor(plan: ServerPlan, running: { pid: number; reused: boolean; password: string | undefined }) {
    this.#plan = plan;
    this.#pid = running.pid;
    this.reused = running.reused;
    this.dataDir = plan.dataDir;
    this.logFile = plan.logFile;
    this.port = plan.port;
    const secret = running.password === undefined ? "" : `:${encodeURIComponent(running.password)}`;
    this.url = `postgres://${SUPERUSER}${secret}@127.0.0.1:${plan.port}/postgres`;
  }

  /** The process id of the server started last. */
  get pid(): number {
    return this.#pid;
  }

  /** Ends the server, also a re-used one, and resolves when nothing of it is left. The data stays. */
  async stop(): Promise<void> {
    await this.#end("SIGINT");
  }

  /** Crashes the server: no session is told, nothing is written down. For tests of what survives. */
  async killImmediately(): Promise<void> {
    await this.#end("SIGQUIT");
  }

  /** Stops the server, if it runs, and starts it again on the same port. */
  async restart(mode: StopMode = "fast"): Promise<void> {
    await (mode === "fast" ? this.stop() : this.killImmediately());
    this.#pid = await launchServer(this.#plan);
  }

  async #end(signal: "SIGINT" | "SIGQUIT"): Promise<void> {
    const { dataDir } = this;
    await stopServer({ dataDir, lastKnownPid: this.#pid, signal, timeoutMs: STOP_TIMEOUT_MS });
  }
}
