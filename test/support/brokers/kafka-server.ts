import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { Connection, metadataV12 } from "@platformatic/kafka";
import { findFreePort } from "../../../src/embedded/start-embedded-postgres.ts";
import { serverFolder } from "../server-folder.ts";
import type { BrokerServer } from "./broker-server.ts";
import { endWithParent, type ProcessOptions } from "./end-with-parent.ts";
import { kafkaJars, kafkaVersion } from "./kafka/kafka-jars.ts";
import { kafkaProperties, type KafkaPorts, type KafkaTestOptions } from "./kafka/kafka-properties.ts";

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
