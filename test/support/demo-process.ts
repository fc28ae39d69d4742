import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmodSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { onTestFinished } from "vitest";
import { isPostgresProcess, readPostmasterFile } from "../../src/embedded/server-process.ts";
import { until } from "./relays.ts";
import { serverFolder } from "./server-folder.ts";

const root = join(import.meta.dirname, "..", "..");

/** A folder for the data of demos, gone after the test. */
export function demoFolder(): string {
  const folder = serverFolder("sagabox-start-");
  chmodSync(folder, 0o755); // the server may run under another account
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export interface Order {
  readonly status: string;
  readonly billed: number;
  readonly shipped: number;
}

/** `npm start`, as a person runs it, on free ports and without customers of its own. */
export class Demo {
  readonly #child: ChildProcess;
  #output = "";

  constructor(folder: string, ...words: readonly string[]) {
    const { DATABASE_URL: _, SAGABOX_DATABASE_URL: __, SHOP_BROKER_URL: ___, ...env } = process.env;
    this.#child = spawn(process.execPath, [join(root, "scripts", "run.mjs"), "start", ...words], {
      cwd: root,
      env: { ...env, PORT: "0", SAGABOX_PORT: "0", SHOP_LOAD: "0", SHOP_FOLDER: folder },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true, // a group of its own, as a terminal gives it
    });
    const onOutput = (text: Buffer): void => void (this.#output += text.toString());
    this.#child.stdout?.on("data", onOutput);
    this.#child.stderr?.on("data", onOutput);
    onTestFinished(() => this.#end());
  }

  /** Everything it has printed. */
  get output(): string {
    return this.#output;
  }

  /** Resolves when it listens. */
  async ready(): Promise<void> {
    await until(() => {
      if (this.#child.exitCode !== null) throw new Error(`it ended:\n${this.#output}`);
      return this.#output.includes("Ctrl-C stops everything");
    }, 90_000);
  }

  async placeOrder(): Promise<string> {
    const answer = await fetch(this.#address("orders"), {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ sku: "tea", quantity: 2, customerId: "you" }),
    });
    const { orderId } = (await answer.json()) as { orderId: string };
    return orderId;
  }

  async order(id: string): Promise<Order> {
    return (await (await fetch(this.#address(`orders/${id}`))).json()) as Order;
  }

  async health(): Promise<number> {
    return (await fetch(/http:\S+\/health\/ready/.exec(this.#output)?.[0] ?? "")).status;
  }

  /** The process id of its database server, while there is one. */
  async postmaster(): Promise<number | undefined> {
    const folder = resolve(root, /^ {2}data\s+(\S+)$/m.exec(this.#output)?.[1] ?? "");
    const found = await readPostmasterFile(folder);
    return found !== undefined && isPostgresProcess(found.pid) ? found.pid : undefined;
  }

  /** The process id of a program that it started, directly or not. */
  program(name: string): number {
    const below = new Set([this.#child.pid]);
    const rows = processes();
    for (let grown = -1; grown < below.size;) {
      grown = below.size;
      for (const { pid, parent } of rows) if (below.has(parent)) below.add(pid);
    }
    const found = rows.find((row) => row.name === name && below.has(row.pid));
    if (found === undefined) throw new Error(`it runs no ${name}`);
    return found.pid;
  }

  /** Whether Ctrl-C in its terminal would reach this process as well. */
  isInReach(pid: number): boolean {
    return processes().some((row) => row.pid === pid && row.group === this.#child.pid);
  }

  /** Ctrl-C reaches the whole group; returns the exit code. */
  async interrupt(): Promise<number | null> {
    this.pressCtrlC();
    return this.waitForExit();
  }

  /** The same without waiting. */
  pressCtrlC(): void {
    this.#signal("SIGINT");
  }

  /** SIGTERM to the process that a supervisor would know; returns the exit code. */
  async terminate(): Promise<number | null> {
    this.#child.kill("SIGTERM");
    return this.waitForExit();
  }

  async waitForExit(): Promise<number | null> {
    if (this.#child.exitCode === null) await once(this.#child, "exit");
    return this.#child.exitCode;
  }

  /** Whether any process of it is left. */
  get isAlive(): boolean {
    return this.#signal(0);
  }

  #address(path: string): string {
    return `${/http:\/\/127\.0\.0\.1:\d+\//.exec(this.#output)?.[0] ?? ""}${path}`;
  }

  #signal(signal: NodeJS.Signals | 0): boolean {
    try {
      return process.kill(-(this.#child.pid ?? 0), signal);
    } catch {
      return false;
    }
  }

  // Only after a failure: what the test could not stop must not stay.
  async #end(): Promise<void> {
    const postmaster = await this.postmaster();
    this.#signal("SIGKILL");
    if (postmaster !== undefined) process.kill(postmaster, "SIGQUIT");
  }
}

interface ProcessRow {
  readonly pid: number;
  readonly name: string;
  readonly parent: number;
  readonly group: number;
}

/** All that run on this machine. */
function processes(): ProcessRow[] {
  return readdirSync("/proc")
    .filter((entry) => /^\d+$/.test(entry))
    .flatMap((entry) => {
      const [, name, parent, group] = /\((.*)\) [^ZX] (\d+) (\d+)/.exec(readStat(entry)) ?? [];
      return name === undefined
        ? []
        : [{ pid: Number(entry), name, parent: Number(parent), group: Number(group) }];
    });
}

export function isRunning(pid: number): boolean {
  return processes().some((row) => row.pid === pid);
}

// It may end between the look at the folder and this one.
function readStat(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return "";
  }
}
