import { fork, type ChildProcess } from "node:child_process";

/** The instructions that a worker process gets when it starts. */
export interface WorkerOrder {
  readonly url: string;
  readonly latencyMs: number;
  /** Whether it reports each message at the moment it is published. */
  readonly reportIds: boolean;
}

/** What it says. Times are on the clock that all processes of the machine share. */
export type WorkerReport =
  | { readonly kind: "lanes"; readonly lanes: number }
  | { readonly kind: "settled"; readonly count: number; readonly rssBytes: number }
  | { readonly kind: "publishing"; readonly ids: readonly string[]; readonly atNs: string };

/** A relay in a process of its own. */
export class WorkerProcess {
  readonly #child: ChildProcess;
  readonly #onReport: (report: WorkerReport) => void;
  lanes = 0;
  settled = 0;
  rssBytes = 0;

  constructor(order: WorkerOrder, onReport: (report: WorkerReport, worker: WorkerProcess) => void) {
    this.#onReport = (report) => onReport(report, this);
    this.#child = fork(
      new URL(import.meta.url.endsWith(".ts") ? "../worker.ts" : "../worker.js", import.meta.url),
      [JSON.stringify(order)],
      {
        stdio: ["ignore", "inherit", "inherit", "ipc"],
      },
    );
    this.#child.on("message", (report: WorkerReport) => this.#handleReport(report));
  }

  async stop(): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.send("stop");
    await ended;
  }

  #handleReport(report: WorkerReport): void {
    if (report.kind === "lanes") this.lanes = report.lanes;
    if (report.kind === "settled") {
      this.settled += report.count;
      this.rssBytes = Math.max(this.rssBytes, report.rssBytes);
    }
    this.#onReport(report);
  }
}

/** Several of them, and what they have done together. */
export class Workers {
  readonly #workers: WorkerProcess[];
  readonly #waiting = new Set<{ readonly reached: () => boolean; readonly resolve: () => void }>();
  readonly #onPublishing: (ids: readonly string[], atNs: bigint) => void;

  constructor(
    count: number,
    order: WorkerOrder,
    onPublishing: (ids: readonly string[], atNs: bigint) => void = () => undefined,
  ) {
    this.#onPublishing = onPublishing;
    this.#workers = Array.from(
      { length: count },
      () => new WorkerProcess(order, (report) => this.#handleReport(report)),
    );
  }

  /** Every lane has an owner and every worker its share. */
  waitForShare(): Promise<void> {
    const share = 256 / this.#workers.length;
    return this.#until(() => this.#workers.every(({ lanes }) => lanes === share));
  }

  settles(count: number): Promise<void> {
    const end = this.#countSettled() + count;
    return this.#until(() => this.#countSettled() >= end);
  }

  rssBytes(): number {
    return Math.max(...this.#workers.map((worker) => worker.rssBytes));
  }

  async stop(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.stop()));
  }

  #countSettled(): number {
    return this.#workers.reduce((sum, worker) => sum + worker.settled, 0);
  }

  #until(reached: () => boolean): Promise<void> {
    if (reached()) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.add({ reached, resolve }));
  }

  #handleReport(report: WorkerReport): void {
    if (report.kind === "publishing") return this.#onPublishing(report.ids, BigInt(report.atNs));
    for (const entry of this.#waiting) {
      if (!entry.reached()) continue;
      this.#waiting.delete(entry);
      entry.resolve();
    }
  }
}
