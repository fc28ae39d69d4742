import { execFile, spawn } from "node:child_process";
import {
  existsSync,
  readFileSync,
  rmSync,
  writeFileSync,
  mkdirSync,
  openSync,
  closeSync,
  realpathSync,
} from "node:fs";
import { createServer } from "node:net";
import { join, delimiter, dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { connect } from "amqplib";
import { serverHome } from "../server-folder.ts";
import { type BrokerServer, endWithParent, type ProcessOptions } from "./broker-server.ts";

/** Whether the process group whose leader's id is in this file has a process left. */
export function groupLives(pidFile: string): boolean {
  try {
    process.kill(-Number(readFileSync(pidFile, "utf8")), 0);
    return true;
  } catch {
    return false;
  }
}

/** Signals the process group until it is gone, with SIGKILL in the end. */
export async function endGroup(pidFile: string, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
  if (!existsSync(pidFile)) return;
  const group = -Number(readFileSync(pidFile, "utf8"));
  const began = Date.now();
  let word = signal;
  while (groupLives(pidFile)) {
    try {
      process.kill(group, word);
    } catch {
      break;
    }
    for (let n = 0; n < 100 && groupLives(pidFile); n++) await delay(50);
    if (Date.now() - began > 20_000) word = "SIGKILL";
  }
  rmSync(pidFile, { force: true });
}

export const USER = "sagabox";
export const PASSWORD = "only-for-tests";

export interface RabbitPorts {
  readonly amqp: number;
  readonly tls: number;
  readonly dist: number;
  readonly epmd: number;
}

/** Less than a transport allows by default, so that a test can send what closes its channel. */
export const maxMessageBytes = 5 * 1_048_576;

/** The rabbitmq.conf of a server, with the names of all nodes if it is part of a cluster. */
export function configuration(ports: RabbitPorts, folder: string, nodes: readonly string[]): string {
  return [
    `listeners.tcp.1 = 127.0.0.1:${ports.amqp}`,
    `listeners.ssl.1 = 127.0.0.1:${ports.tls}`,
    `ssl_options.cacertfile = ${join(folder, "ca.pem")}`,
    `ssl_options.certfile = ${join(folder, "cert.pem")}`,
    `ssl_options.keyfile = ${join(folder, "key.pem")}`,
    "ssl_options.verify = verify_none",
    "ssl_options.versions.1 = tlsv1.2",
    `default_user = ${USER}`,
    `default_pass = ${PASSWORD}`,
    "vm_memory_high_watermark.absolute = 1GB",
    `max_message_size = ${maxMessageBytes}`,
    "disk_free_limit.absolute = 50MB",
    "raft.wal_max_size_bytes = 32000000",
    "log.console.level = warning",
    ...(nodes.length === 0 ? [] : ["cluster_formation.peer_discovery_backend = classic_config"]),
    ...nodes.map((node, n) => `cluster_formation.classic_config.nodes.${n + 1} = ${node}`),
    "",
  ].join("\n");
}

// An authority of our own and a certificate for the loopback, good for a day.
export async function certificates(folder: string): Promise<void> {
  const openssl = (words: string): Promise<unknown> => run("openssl", words.split(" "), { cwd: folder });
  const key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
  await openssl(`req -x509 ${key} -keyout ca-key.pem -out ca.pem -subj /CN=sagabox-tests`);
  writeFileSync(join(folder, "names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
  await openssl(`req ${key} -keyout key.pem -out request.pem -subj /CN=localhost`);
  await openssl(
    "x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile names -out cert.pem",
  );
}

const run = promisify(execFile);
const READY_MS = 120_000;
const CTL_MS = 60_000;

/** One node's part in a cluster. All nodes share the port mapper, which the cluster starts and stops. */
export interface RabbitClusterNode {
  readonly name: string;
  /** The names of all nodes; the first one must be up before the others start. */
  readonly nodes: readonly string[];
  readonly epmdPort: number;
  readonly cookie: string;
}

interface Written {
  readonly ports: RabbitPorts;
  readonly programs: string;
  readonly cluster?: RabbitClusterNode;
}

/**
 * A RabbitMQ server. Its state is stored in a folder named after its port, so that a test in another
 * process may take hold of the server of the run, kill it and start it again.
 */
export class RabbitServer implements BrokerServer {
  readonly url: string;
  readonly folder: string;
  readonly tlsPort: number;
  readonly #ports: RabbitPorts;
  readonly #programs: string;
  readonly #cluster: RabbitClusterNode | undefined;
  readonly #apart: boolean;
  readonly #sync: RabbitServerOptions["sync"];

  constructor(folder: string, { apart = false, sync }: RabbitServerOptions = {}) {
    this.folder = folder;
    this.#apart = apart;
    this.#sync = sync;
    const written = readFileSync(join(folder, "server.json"), "utf8");
    const { ports, programs, cluster } = JSON.parse(written) as Written;
    this.#cluster = cluster;
    this.#ports = ports;
    this.#programs = programs;
    this.tlsPort = ports.tls;
    this.url = `amqp://${USER}:${PASSWORD}@127.0.0.1:${ports.amqp}`;
  }

  get version(): string {
    return readFileSync(join(this.folder, "version"), "utf8");
  }

  get name(): string {
    return this.#cluster?.name ?? `sagabox-${this.#ports.amqp}@localhost`;
  }

  async start(): Promise<void> {
    if (this.#cluster === undefined)
      await this.#spawn("epmd", found("epmd") ?? "epmd", ["-port", String(this.#ports.epmd)]);
    await this.#spawn("server", join(this.#programs, "rabbitmq-server"), []);
    const version = await this.#ready();
    writeFileSync(join(this.folder, "version"), `RabbitMQ ${version}`);
  }

  // RabbitMQ 3.10 writes its register of quorum queues to disk some seconds after a queue was declared, and a queue that
  // is missing there never answers again. That is the broker's own affair, so the register is written before the kill.
  async kill(): Promise<void> {
    const act = '[dets:sync(T) || T <- dets:all()], os:cmd("kill -9 " ++ os:getpid()).';
    const sync = this.#sync ?? ((): Promise<unknown> => this.ctl("eval", act));
    await sync(this.name).catch(() => undefined);
    await this.#end("SIGKILL");
  }

  signal(word: "SIGSTOP" | "SIGCONT"): void {
    process.kill(-Number(readFileSync(join(this.folder, "server.pid"), "utf8")), word);
  }

  async stop(): Promise<void> {
    await this.#end("SIGTERM");
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** What a person at the server would type after `rabbitmqctl`. */
  async ctl(...words: readonly string[]): Promise<string> {
    const env = this.#buildEnvironment();
    const { stdout } = await run(join(this.#programs, "rabbitmqctl"), ["-q", ...words], {
      env,
      timeout: CTL_MS,
    });
    return stdout;
  }

  #buildEnvironment(): Record<string, string> {
    const { folder } = this;
    const words =
      "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}";
    return {
      PATH: `${process.env["PATH"] ?? ""}${delimiter}/usr/sbin${delimiter}/usr/bin${delimiter}/bin`,
      LANG: "C.UTF-8",
      HOME: folder,
      ERL_EPMD_PORT: String(this.#ports.epmd),
      ERL_EPMD_ADDRESS: "127.0.0.1",
      RABBITMQ_NODENAME: this.name,
      RABBITMQ_DIST_PORT: String(this.#ports.dist),
      RABBITMQ_MNESIA_BASE: join(folder, "data"),
      RABBITMQ_LOG_BASE: join(folder, "log"),
      RABBITMQ_LOGS: "-",
      RABBITMQ_ENABLED_PLUGINS_FILE: join(folder, "plugins"),
      RABBITMQ_CONFIG_FILE: join(folder, "rabbitmq"),
      RABBITMQ_CONF_ENV_FILE: join(folder, "no-environment"),
      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: words,
      RABBITMQ_CTL_ERL_ARGS: "+S 1:1 +sbwt none",
    };
  }

  // In a process group of its own: the launcher is a shell with the server as its child.
  async #spawn(name: string, program: string, words: readonly string[]): Promise<void> {
    const log = openSync(join(this.folder, `${name}.log`), "a");
    const child = spawn(program, words, {
      env: this.#buildEnvironment(),
      cwd: this.folder,
      detached: true,
      stdio: ["ignore", log, log],
    });
    closeSync(log);
    if (this.#apart) endWithParent(child, this.folder);
    await new Promise<void>((resolve, reject) => {
      child.once("spawn", resolve);
      child.once("error", reject);
    });
    writeFileSync(join(this.folder, `${name}.pid`), String(child.pid));
    child.unref();
  }

  async #end(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    await endGroup(join(this.folder, "server.pid"), signal);
    if (this.#cluster === undefined) await endGroup(join(this.folder, "epmd.pid"), "SIGKILL");
  }

  async #ready(): Promise<string> {
    const began = Date.now();
    for (;;) {
      try {
        const connection = await connect(this.url, { timeout: 10_000 });
        const { version } = connection.connection.serverProperties;
        await connection.close();
        return version;
      } catch (error) {
        if (groupLives(join(this.folder, "server.pid")) && Date.now() - began < READY_MS) await delay(200);
        else
          throw new Error(`RabbitMQ did not start. Its last words:\n${this.#readLogTail()}`, {
            cause: error,
          });
      }
    }
  }

  #readLogTail(): string {
    return readFileSync(join(this.folder, "server.log"), "utf8").split("\n").slice(-25).join("\n");
  }
}

/** The server of this run, for a test that needs more of it than its address. */
export function rabbitServerAt(url: string): RabbitServer {
  return new RabbitServer(serverFolder(Number(new URL(url).port)));
}

const serverFolder = (port: number): string => join(serverHome(), `sagabox-rabbitmq-${port}`);

interface RabbitServerOptions extends ProcessOptions {
  readonly cluster?: RabbitClusterNode;
  /** Makes the node of this name write its registers to disk. Default: `rabbitmqctl`, which is slow to start. */
  readonly sync?: (name: string) => Promise<unknown>;
}

export async function startRabbitMQ(
  wishes: RabbitServerOptions = {},
): Promise<{ readonly server: RabbitServer } | { readonly missing: string }> {
  const programs = programFolder();
  if (programs === undefined || found("epmd") === undefined) {
    return { missing: "RabbitMQ 3.10 or newer is not installed: apt-get install rabbitmq-server" };
  }
  const [amqp, tls, dist, epmd] = await freePorts(4);
  const { cluster } = wishes;
  const ports = { amqp: amqp ?? 0, tls: tls ?? 0, dist: dist ?? 0, epmd: cluster?.epmdPort ?? epmd ?? 0 };
  const folder = serverFolder(ports.amqp);
  mkdirSync(folder, { mode: 0o700 });
  writeFileSync(join(folder, "server.json"), JSON.stringify({ ports, programs, cluster }));
  if (cluster !== undefined) writeFileSync(join(folder, ".erlang.cookie"), cluster.cookie, { mode: 0o400 });
  writeFileSync(join(folder, "plugins"), "[].\n");
  await certificates(folder);
  writeFileSync(join(folder, "rabbitmq.conf"), configuration(ports, folder, cluster?.nodes ?? []));
  const server = new RabbitServer(folder, wishes);
  try {
    await server.start();
  } catch (error) {
    await server.stop();
    throw error;
  }
  return { server };
}

// The command on the path of Debian changes the account and the log; the real scripts lie beside what it points to.
function programFolder(): string | undefined {
  const command = found("rabbitmq-server");
  const folders = [
    ...(command === undefined ? [] : [dirname(realpathSync(command))]),
    "/usr/lib/rabbitmq/bin",
  ];
  return folders.find(
    (folder) => existsSync(join(folder, "rabbitmq-server")) && existsSync(join(folder, "rabbitmqctl")),
  );
}

export function found(name: string): string | undefined {
  const folders = [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin", "/usr/bin"];
  return folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
}

export async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, () => {
      const server = createServer();
      return new Promise<typeof server>((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
    }),
  );
  return Promise.all(
    servers.map((server) => {
      const address = server.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      return new Promise<number>((resolve) => server.close(() => resolve(port)));
    }),
  );
}
