import type { ChildProcess } from "node:child_process";
import { rmSync } from "node:fs";

/** A real broker of our own: on a free port of the loopback, with its own data folder, gone when the run is over. */
export interface BrokerServer {
  /** What a client is given. */
  readonly url: string;
  /** For people: name and version. */
  readonly version: string;
  /** Where it keeps everything. */
  readonly folder: string;
  /** SIGKILL, and the process is gone. The data stay. */
  kill(): Promise<void>;
  /** Stops the process with all its state, or continues it. */
  signal(word: "SIGSTOP" | "SIGCONT"): void;
  /** Starts it again on the same port with the same data; resolves when clients are served. */
  start(): Promise<void>;
  /** Stops it cleanly and removes everything. */
  stop(): Promise<void>;
}

/** A started server, or the reason why there is none. */
export type BrokerFound = { readonly server: BrokerServer } | { readonly missing: string };

/** CI must not pass because a server was not there. */
export function assertRequired(broker: string, missing: string): void {
  if (process.env["TEST_REQUIRE"] !== "all") return;
  throw new Error(`TEST_REQUIRE=all, but there is no ${broker} here: ${missing}`);
}

export interface ProcessOptions {
  /**
   * In a process group of its own, so that Ctrl-C, which reaches every process of a terminal, leaves it to us; and gone with
   * its folder when we end, however suddenly.
   */
  readonly apart?: boolean;
}

/** Ends the group that the child leads, at the latest when this process ends. */
export function endWithParent(child: ChildProcess, folder: string): void {
  const group = child.pid;
  if (group === undefined) return; // it never started
  const end = (): void => {
    if (!sendSignal(group, "SIGKILL")) return;
    try {
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
    } catch {
      // A process that is only just dying may have written there once more.
    }
  };
  process.once("exit", end);
  child.once("exit", () => {
    if (!sendSignal(group, 0)) process.off("exit", end);
  });
}

function sendSignal(group: number, signal: "SIGKILL" | 0): boolean {
  try {
    return process.kill(-group, signal);
  } catch {
    return false;
  }
}

export const brokerKinds = ["rabbitmq", "kafka", "nats"] as const;
export type BrokerKind = (typeof brokerKinds)[number];

export function isBrokerKind(name: string): name is BrokerKind {
  return (brokerKinds as readonly string[]).includes(name);
}

// Loaded on demand: a worker that only talks to a broker starts twice as fast without them.
const starts: Readonly<Record<BrokerKind, (company: ProcessOptions) => Promise<BrokerFound>>> = {
  rabbitmq: async (company) => (await import("./rabbitmq-server.ts")).startRabbitMQ(company),
  kafka: async (company) => (await import("./kafka-server.ts")).startKafka(company),
  nats: async (company) => (await import("./nats-server.ts")).startNATS(company),
};

/** Starts a server, or returns the reason why there is none. */
export function startBroker(kind: BrokerKind, company: ProcessOptions = {}): Promise<BrokerFound> {
  return starts[kind](company);
}
