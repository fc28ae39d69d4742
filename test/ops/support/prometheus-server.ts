import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { stringify } from "yaml";
import { assertRequired } from "../../support/brokers/broker-server.ts";
import type { RuleFile } from "./rule-files.ts";

export interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface FiringAlert {
  readonly name: string;
  readonly job: string;
}

export interface PrometheusWishes {
  readonly everyMs: number;
  /** Address and port by the name of the job. */
  readonly targets: Readonly<Record<string, string>>;
  readonly rules: ReadonlyMap<string, RuleFile>;
}

/** Why there is no Prometheus here; undefined where there is one. CI must not pass without. */
export function prometheusMissing(): string | undefined {
  const absent = ["prometheus", "promtool", "amtool"].filter(
    (tool) => spawnSync(tool, ["--version"], { stdio: "ignore" }).error !== undefined,
  );
  if (absent.length === 0) return undefined;
  const missing = `${absent.join(", ")} not found (Debian and Ubuntu: apt-get install prometheus prometheus-alertmanager)`;
  assertRequired("Prometheus", missing);
  return missing;
}

/** A Prometheus of our own on a free port, with its data in a folder that goes with it. */
export class PrometheusServer {
  readonly #folder = mkdtempSync(join(tmpdir(), "sagabox-prometheus-"));
  readonly #log = join(this.#folder, "log");
  #url = "";
  #process: ChildProcess | undefined;

  async start({ everyMs, targets, rules }: PrometheusWishes): Promise<void> {
    const every = `${everyMs}ms`;
    const config = {
      global: { scrape_interval: every, scrape_timeout: every, evaluation_interval: every },
      rule_files: [join(this.#folder, "rules/*.yaml")],
      scrape_configs: Object.entries(targets).map(([job_name, target]) => ({
        job_name,
        static_configs: [{ targets: [target] }],
      })),
    };
    writeFileSync(join(this.#folder, "prometheus.yaml"), stringify(config));
    mkdirSync(join(this.#folder, "rules"));
    for (const [name, file] of rules) writeFileSync(join(this.#folder, "rules", name), stringify(file));
    const port = await freePort();
    this.#url = `http://127.0.0.1:${port}`;
    const args = [
      `--config.file=${join(this.#folder, "prometheus.yaml")}`,
      `--storage.tsdb.path=${join(this.#folder, "data")}`,
      `--web.listen-address=127.0.0.1:${port}`,
      `--query.lookback-delta=${everyMs * 6}ms`,
      "--log.level=warn",
    ];
    // Its output goes into a file: a pipe without a reader would block it.
    const shell = `exec prometheus "$@" >"${this.#log}" 2>&1`;
    this.#process = spawn("/bin/sh", ["-c", shell, "prometheus", ...args], { stdio: "ignore" });
    await this.#ready();
  }

  async query(expression: string): Promise<readonly Sample[]> {
    const response = await fetch(`${this.#url}/api/v1/query?query=${encodeURIComponent(expression)}`);
    const { data, error } = (await response.json()) as {
      data?: { result: readonly { metric: Record<string, string>; value: [number, string] }[] };
      error?: string;
    };
    if (data === undefined) throw new Error(`${expression}: ${error ?? response.statusText}`);
    return data.result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }));
  }

  /** All alerts that fire now, each with the installation it is about; the jobs of a cluster are reported by kube-state-metrics. */
  async firing(): Promise<readonly FiringAlert[]> {
    const response = await fetch(`${this.#url}/api/v1/alerts`);
    const { data } = (await response.json()) as {
      data: { alerts: readonly { labels: { alertname: string; job?: string }; state: string }[] };
    };
    return data.alerts
      .filter(({ state }) => state === "firing")
      .map(({ labels: { alertname: name, job = "kube-state-metrics" } }) => ({ name, job }));
  }

  async stop(): Promise<void> {
    const child = this.#process;
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      const exited = once(child, "exit");
      child.kill("SIGTERM");
      await exited;
    }
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #ready(): Promise<void> {
    const giveUpAt = Date.now() + 30_000;
    for (;;) {
      const response = await fetch(`${this.#url}/-/ready`).catch(() => undefined);
      if (response?.ok === true) return;
      if (this.#process?.exitCode !== null || Date.now() > giveUpAt) {
        throw new Error(`prometheus did not start:\n${readFileSync(this.#log, "utf8").slice(-2_000)}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

export async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
