import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmodSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { onTestFinished } from "vitest";
import { isServer, readPostmasterFile } from "../../src/embedded/postmaster-file.ts";
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
  #told = "";

  constructor(folder: string, ...words: readonly string[]) {
    const { DATABASE_URL: _, SAGABOX_DATABASE_URL: __, SAGABOX_BROKER_URL: ___, ...env } = process.env;
    this.#child = spawn(process.execPath, [join(root, "scripts", "run.mjs"), "start", ...words], {
      cwd: root,
      env: { ...env, PORT: "0", SAGABOX_PORT: "0", SHOP_LOAD: "0", SHOP_FOLDER: folder },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true, // a group of its own, as a terminal gives it
    });
    const hear = (text: Buffer): void => void (this.#told += text.toString());
    this.#child.stdout?.on("data", hear);
    this.#child.stderr?.on("data", hear);
    onTestFinished(() => this.#end());
  }

  /** Everything it has printed. */
  get told(): string {
    return this.#told;
  }

  /** Resolves when it listens. */
  async ready(): Promise<void> {
    await until(() => {
      if (this.#child.exitCode !== null) throw new Error(`it ended:\n${this.#told}`);
      return this.#told.includes("Ctrl-C stops everything");
    }, 90_000);
  }

  async place(): Promise<string> {
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
    return (await fetch(/http:\S+\/health\/ready/.exec(this.#told)?.[0] ?? "")).status;
  }

  /** The process id of its database server, while there is one. */
  async postmaster(): Promise<number | undefined> {
    const folder = resolve(root, /^ {2}data\s+(\S+)$/m.exec(this.#told)?.[1] ?? "");
    const found = await readPostmasterFile(folder);
    return found !== undefined && isServer(found.pid) ? found.pid : undefined;
  }

  /** Ctrl-C reaches the whole group; returns the exit code. */
  async interrupt(): Promise<number | null> {
    this.#signal("SIGINT");
    if (this.#child.exitCode === null) await once(this.#child, "exit");
    return this.#child.exitCode;
  }

  /** Whether any process of it is left. */
  get isAlive(): boolean {
    return this.#signal(0);
  }

  #address(path: string): string {
    return `${/http:\/\/127\.0\.0\.1:\d+\//.exec(this.#told)?.[0] ?? ""}${path}`;
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
