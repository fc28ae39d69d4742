import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import { serverFolder } from "../server-folder.ts";
import { type BrokerFound, type BrokerServer, endWithParent, type ProcessOptions } from "./broker-server.ts";

export interface NatsServerOptions extends ProcessOptions {
  /** Lines of its configuration beside those for address and storage: users, limits, certificates. */
  readonly config?: string;
}

const READY_MS = 20_000;

/** A NATS server with JetStream of our own. */
export async function startNATS(wishes: NatsServerOptions = {}): Promise<BrokerFound> {
  const { stdout, error } = spawnSync("nats-server", ["--version"], { encoding: "utf8" });
  if (error !== undefined) {
    return { missing: "install nats-server (Debian and Ubuntu: apt-get install nats-server)" };
  }
  const server = new NatsServer(await freePort(), stdout.trim(), wishes);
  await server.start();
  return { server };
}

class NatsServer implements BrokerServer {
  readonly url: string;
  readonly version: string;
  readonly #port: number;
  readonly folder = serverFolder("sagabox-nats-");
  readonly #log = join(this.folder, "server.log");
  readonly #apart: boolean;
  #process: ChildProcess | undefined;

  constructor(port: number, version: string, { config = "", apart = false }: NatsServerOptions) {
    this.#apart = apart;
    this.url = `nats://127.0.0.1:${port}`;
    this.version = version;
    this.#port = port;
    const lines = [
      `listen: "127.0.0.1:${port}"`,
      `log_file: ${JSON.stringify(this.#log)}`,
      `jetstream { store_dir: ${JSON.stringify(join(this.folder, "data"))} }`,
      config,
    ];
    writeFileSync(join(this.folder, "server.conf"), `${lines.join("\n")}\n`);
  }

  async start(): Promise<void> {
    if (this.#process !== undefined) return;
    this.#process = spawn("nats-server", ["-c", join(this.folder, "server.conf")], {
      stdio: "ignore",
      detached: this.#apart,
    });
    if (this.#apart) endWithParent(this.#process, this.folder);
    const giveUpAt = Date.now() + READY_MS;
    while (!(await this.#answers())) {
      if (this.#process.exitCode !== null || Date.now() > giveUpAt) {
        const log = this.#lastLines();
        await this.stop();
        throw new Error(`nats-server did not start:\n${log}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  signal(word: "SIGSTOP" | "SIGCONT"): void {
    this.#process?.kill(word);
  }

  async stop(): Promise<void> {
    await this.#end("SIGTERM");
    rmSync(this.folder, { recursive: true, force: true });
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, "exit");
    child.kill(signal);
    await exited;
  }

  // Clients are greeted only once the streams on disk have been read.
  async #answers(): Promise<boolean> {
    const socket = connect(this.#port, "127.0.0.1");
    try {
      const [greeting] = (await once(socket, "data")) as [Buffer];
      return greeting.toString("latin1").startsWith("INFO");
    } catch {
      return false;
    } finally {
      socket.destroy();
    }
  }

  #lastLines(): string {
    try {
      return readFileSync(this.#log, "utf8").split("\n").slice(-15).join("\n");
    } catch {
      return "(no log)";
    }
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
