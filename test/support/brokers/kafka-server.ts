import { execFile, spawn, type ChildProcess } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, createWriteStream } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { Connection, metadataV12 } from "@platformatic/kafka";
import { findFreePort } from "../../../src/embedded/start-embedded-postgres.ts";
import { serverFolder } from "../server-folder.ts";
import { type BrokerServer, endWithParent, type ProcessOptions } from "./broker-server.ts";

const run = promisify(execFile);
const here = join(import.meta.dirname, "kafka");

export const kafkaVersion = "4.3.0";

/** Where the jars lie; TEST_KAFKA_JARS names another folder. */
function jarsFolder(): string {
  const cache = process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache");
  return process.env["TEST_KAFKA_JARS"] ?? join(cache, "sagabox", `kafka-${kafkaVersion}`);
}

/** The folder with every jar of the broker, each checked; resolved by Maven the first time. Or what is missing. */
export async function kafkaJars(): Promise<{ readonly folder: string } | { readonly missing: string }> {
  if (!(await works("java", ["-version"])))
    return { missing: "Java 17 or newer (apt-get install default-jre)" };
  const folder = jarsFolder();
  if (existsSync(folder)) {
    const wrong = await firstWrongJar(folder);
    if (wrong === undefined) return { folder };
    throw new Error(`${wrong} in ${folder} is not what jars.sha256 says. Remove the folder and try again.`);
  }
  if (!(await works("mvn", ["-version"]))) return { missing: "Maven (apt-get install maven)" };
  await resolve(folder);
  return { folder };
}

// Resolved beside its place and moved there whole, so that two runs that start together do not meet half a folder.
async function resolve(folder: string): Promise<void> {
  await mkdir(dirname(folder), { recursive: true });
  const part = await mkdtemp(`${folder}.`);
  try {
    const goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", `-DoutputDirectory=${part}`];
    await run("mvn", ["-q", "-B", "-f", join(here, "pom.xml"), ...goal], { timeout: 600_000 });
    const wrong = await firstWrongJar(part);
    if (wrong !== undefined) throw new Error(`Maven brought ${wrong}, which is not what jars.sha256 says.`);
    await rename(part, folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error;
    });
  } finally {
    await rm(part, { recursive: true, force: true });
  }
}

async function firstWrongJar(folder: string): Promise<string | undefined> {
  const list = await readFile(join(here, "jars.sha256"), "utf8");
  const expected = new Map(
    list
      .trim()
      .split("\n")
      .map((line) => line.split(/\s+/).reverse() as [string, string]),
  );
  const found = (await readdir(folder)).filter((name) => name.endsWith(".jar"));
  for (const name of new Set([...expected.keys(), ...found])) {
    if (!found.includes(name)) return name;
    const digest = createHash("sha256").update(await readFile(join(folder, name)));
    if (digest.digest("hex") !== expected.get(name)) return name;
  }
  return undefined;
}

async function works(command: string, args: readonly string[]): Promise<boolean> {
  return run(command, args).then(
    () => true,
    () => false,
  );
}

export interface KafkaPorts {
  readonly plain: number;
  readonly controller: number;
  readonly tls: number;
  readonly sasl: number;
  readonly saslTls: number;
}

/** One node's part in a cluster of brokers that are their own controllers. */
export interface KafkaQuorum {
  /** The id of the cluster; all nodes have the same. */
  readonly cluster: string;
  /** Counts from 1. */
  readonly node: number;
  /** The controller ports of all nodes, in their order. */
  readonly controllers: readonly number[];
}

export interface KafkaTestOptions {
  /** Default: a cluster of one. */
  readonly quorum?: KafkaQuorum;
  /** The largest heap of the process in MB. Default 512. */
  readonly heapMb?: number;
  /** The port that the broker advertises to clients: that of a proxy in front of it. */
  readonly advertisedPort?: number;
  /** Listeners with TLS. */
  readonly tls?: { readonly keystore: string; readonly password: string };
  /** Listeners that ask who is there: each name may log in with PLAIN and with SCRAM. */
  readonly users?: Readonly<Record<string, string>>;
  /** Checks rights; these users may do everything, as may clients without a name. */
  readonly superUsers?: readonly string[];
  readonly settings?: Readonly<Record<string, string>>;
}

/** The server.properties of a broker that is its own controller, small and quick to change its mind. */
export function kafkaProperties(ports: KafkaPorts, folder: string, options: KafkaTestOptions): string {
  const { node = 1, controllers = [ports.controller] } = options.quorum ?? {};
  const copies = String(controllers.length);
  const minInSync = controllers.length >= 3 ? "2" : "1";
  const settings: Record<string, string> = {
    "process.roles": "broker,controller",
    "node.id": String(node),
    "controller.quorum.voters": controllers.map((port, n) => `${n + 1}@127.0.0.1:${port}`).join(","),
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": folder,
    "auto.create.topics.enable": "false",
    "num.partitions": "4",
    "default.replication.factor": copies,
    "min.insync.replicas": minInSync,
    "offsets.topic.replication.factor": copies,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": copies,
    "transaction.state.log.min.isr": minInSync,
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": copies,
    "share.coordinator.state.topic.min.isr": minInSync,
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
    // A broker that was killed comes back in a second instead of ten.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "2097152",
    // Three brokers on a busy machine answer each other late; with times this short they would elect for ever.
    ...(controllers.length > 1 && {
      "broker.session.timeout.ms": "9000",
      "controller.quorum.election.timeout.ms": "2000",
      "controller.quorum.fetch.timeout.ms": "4000",
    }),
    ...listeners(ports, options),
    ...security(options),
    ...options.settings,
  };
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value}\n`)
    .join("");
}

function listeners(ports: KafkaPorts, { advertisedPort, tls, users }: KafkaTestOptions) {
  const open: [name: string, protocol: string, port: number][] = [["PLAINTEXT", "PLAINTEXT", ports.plain]];
  if (tls !== undefined) open.push(["TLS", "SSL", ports.tls]);
  if (users !== undefined) open.push(["SASL", "SASL_PLAINTEXT", ports.sasl]);
  if (users !== undefined && tls !== undefined) open.push(["SASLTLS", "SASL_SSL", ports.saslTls]);
  const address = ([name, , port]: (typeof open)[number]): string => `${name}://127.0.0.1:${port}`;
  const own = open.map(address).join(",");
  const told = open.map(([name, protocol, port]) =>
    address([name, protocol, name === "PLAINTEXT" ? (advertisedPort ?? port) : port]),
  );
  return {
    listeners: `${own},CONTROLLER://127.0.0.1:${ports.controller}`,
    "advertised.listeners": told.join(","),
    "listener.security.protocol.map": `CONTROLLER:PLAINTEXT,${open.map(([name, protocol]) => `${name}:${protocol}`).join(",")}`,
  };
}

function security({ tls, users, superUsers }: KafkaTestOptions): Record<string, string> {
  const settings: Record<string, string> = {};
  if (tls !== undefined) {
    settings["ssl.keystore.type"] = "PKCS12";
    settings["ssl.keystore.location"] = tls.keystore;
    settings["ssl.keystore.password"] = tls.password;
  }
  if (users !== undefined) {
    const known = Object.entries(users).map(([name, password]) => `user_${name}="${password}"`);
    settings["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512";
    for (const listener of tls === undefined ? ["sasl"] : ["sasl", "sasltls"]) {
      const login = `listener.name.${listener}`;
      const module = "org.apache.kafka.common.security";
      settings[`${login}.plain.sasl.jaas.config`] =
        `${module}.plain.PlainLoginModule required ${known.join(" ")};`;
      for (const mechanism of ["scram-sha-256", "scram-sha-512"])
        settings[`${login}.${mechanism}.sasl.jaas.config`] = `${module}.scram.ScramLoginModule required;`;
    }
  }
  if (superUsers !== undefined) {
    settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    settings["super.users"] = ["ANONYMOUS", ...superUsers].map((name) => `User:${name}`).join(";");
  }
  return settings;
}

export interface KafkaServer extends BrokerServer {
  /** host:port of each listener; the last three are there if they were asked for. */
  readonly addresses: Readonly<Record<keyof KafkaPorts, string>>;
  readonly jars: string;
  /** Where it keeps its logs, a folder for each partition. */
  readonly data: string;
}

const READY_MS = 180_000;
// A test broker lives for minutes: the quick compiler and the simple collector start it soonest.
const JAVA = ["-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/** Apache Kafka in KRaft mode: one process, broker and controller in one. */
export async function startKafka(
  options: KafkaTestOptions & ProcessOptions = {},
): Promise<{ readonly server: KafkaServer } | { readonly missing: string }> {
  const jars = await kafkaJars();
  if ("missing" in jars) return jars;
  const folder = serverFolder("sagabox-kafka-");
  const ports = await freePorts(options);
  const running = new KafkaProcess(jars.folder, folder, ports, options);
  try {
    await writeFile(join(folder, "server.properties"), kafkaProperties(ports, join(folder, "data"), options));
    await running.format(options);
    await running.start();
  } catch (error) {
    await running.stop();
    throw error;
  }
  return { server: createServer(running, ports, { jars: jars.folder, data: join(folder, "data") }) };
}

function createServer(
  running: KafkaProcess,
  ports: KafkaPorts,
  folders: Pick<KafkaServer, "jars" | "data">,
): KafkaServer {
  const at = (port: number): string => `127.0.0.1:${port}`;
  return {
    url: at(ports.plain),
    version: `Apache Kafka ${kafkaVersion}`,
    addresses: {
      plain: at(ports.plain),
      controller: at(ports.controller),
      tls: at(ports.tls),
      sasl: at(ports.sasl),
      saslTls: at(ports.saslTls),
    },
    ...folders,
    folder: folders.data,
    kill: () => running.kill(),
    signal: (word) => running.signal(word),
    start: () => running.start(),
    stop: () => running.stop(),
  };
}

class KafkaProcess {
  readonly #jars: string;
  readonly #folder: string;
  readonly #ports: KafkaPorts;
  readonly #apart: boolean;
  readonly #heapMb: number;
  #child: ChildProcess | undefined;

  constructor(
    jars: string,
    folder: string,
    ports: KafkaPorts,
    { apart = false, heapMb = 512 }: ProcessOptions & KafkaTestOptions,
  ) {
    this.#apart = apart;
    this.#heapMb = heapMb;
    this.#jars = jars;
    this.#folder = folder;
    this.#ports = ports;
  }

  async format({ users = {}, quorum }: KafkaTestOptions): Promise<void> {
    const cluster = quorum?.cluster ?? newClusterId();
    const scram = Object.entries(users).flatMap(([name, password]) =>
      ["SCRAM-SHA-256", "SCRAM-SHA-512"].flatMap((mechanism) => [
        "--add-scram",
        `${mechanism}=[name=${name},password=${password}]`,
      ]),
    );
    const tool = ["kafka.tools.StorageTool", "format", "-t", cluster, ...scram];
    await promisify(execFile)("java", [...this.#java(), ...tool, "-c", this.#file("server.properties")]);
  }

  async start(): Promise<void> {
    const child = spawn("java", [...this.#java(), "kafka.Kafka", this.#file("server.properties")], {
      cwd: this.#folder,
      stdio: ["ignore", "pipe", "pipe"],
      detached: this.#apart,
    });
    this.#child = child;
    if (this.#apart) endWithParent(child, this.#folder);
    const log = createWriteStream(this.#file("log"), { flags: "a" });
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log, { end: false });
    const endsAt = Date.now() + READY_MS;
    while (!(await answers(this.#ports.plain))) {
      if (child.exitCode !== null || Date.now() > endsAt) throw new Error(await this.#readLogTail());
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }

  kill(): Promise<void> {
    return this.#end("SIGKILL");
  }

  signal(word: "SIGSTOP" | "SIGCONT"): void {
    this.#child?.kill(word);
  }

  async stop(): Promise<void> {
    await this.#end("SIGTERM");
    await rm(this.#folder, { recursive: true, force: true });
  }

  async #end(how: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, "exit");
    child.kill(how);
    const impatient = setTimeout(() => child.kill("SIGKILL"), 20_000);
    await gone;
    clearTimeout(impatient);
  }

  async #readLogTail(): Promise<string> {
    const log = await readFile(this.#file("log"), "utf8");
    return `Kafka did not start:\n${log.split("\n").slice(-20).join("\n")}`;
  }

  #java(): string[] {
    const logging = `-Dlog4j2.configurationFile=file:${join(import.meta.dirname, "kafka", "log4j2.properties")}`;
    return [...JAVA, `-Xmx${this.#heapMb}m`, logging, "-cp", join(this.#jars, "*")];
  }

  #file(name: string): string {
    return join(this.#folder, name);
  }
}

/** An open port is not enough: it must know itself as a broker of the cluster. */
async function answers(port: number): Promise<boolean> {
  const connection = new Connection("ready", { connectTimeout: 1_000, requestTimeout: 2_000 });
  connection.on("error", () => undefined);
  try {
    await connection.connect("127.0.0.1", port);
    const { brokers } = await metadataV12.api.async(connection, []);
    return brokers.length > 0;
  } catch {
    return false;
  } finally {
    if (connection.isConnected()) await connection.close();
  }
}

/** The id of a new cluster. One that began with a dash would be taken for an option. */
export function newClusterId(): string {
  const bytes = Array.from({ length: 16 }, (_, n) => (n === 0 ? 1 : Math.floor(Math.random() * 256)));
  return Buffer.from(bytes).toString("base64url");
}

async function freePorts({ quorum }: KafkaTestOptions): Promise<KafkaPorts> {
  const [plain, free, tls, sasl, saslTls] = await Promise.all([1, 2, 3, 4, 5].map(() => findFreePort()));
  const controller = quorum?.controllers[quorum.node - 1] ?? free;
  return { plain, controller, tls, sasl, saslTls } as KafkaPorts;
}
