import { SUPERUSER } from "./data-folder.ts";
import { launchServer, stopServer, type ServerPlan } from "./server-process.ts";

/** "fast" ends sessions and writes a checkpoint; "immediate" is a crash, after which the next start recovers. */
export type StopMode = "fast" | "immediate";

const STOP_TIMEOUT_MS = 60_000;

/** A running embedded server. */
export class EmbeddedPostgres {
  readonly dataDir: string;
  readonly logFile: string;
  readonly port: number;
  /** Connection URL for any PostgreSQL client; contains the password. */
  readonly url: string;
  /** True if the server was already running, started by another process or an earlier start. */
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

  /** Stops the server, even a reused one, and resolves when its process has ended. The data stays. */
  async stop(): Promise<void> {
    await this.#end("SIGINT");
  }

  /** Crashes the server without a checkpoint or notice to its sessions. For tests of crash recovery. */
  async killImmediately(): Promise<void> {
    await this.#end("SIGQUIT");
  }

  /** Stops the server, if it is running, and starts it again on the same port. */
  async restart(mode: StopMode = "fast"): Promise<void> {
    await (mode === "fast" ? this.stop() : this.killImmediately());
    this.#pid = await launchServer(this.#plan);
  }

  async #end(signal: "SIGINT" | "SIGQUIT"): Promise<void> {
    const { dataDir } = this;
    await stopServer({ dataDir, lastKnownPid: this.#pid, signal, timeoutMs: STOP_TIMEOUT_MS });
  }
}
