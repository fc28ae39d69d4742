import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { createDatabase } from "../../support/database.ts";
import { until } from "../../support/relays.ts";
import { Load } from "../support/load.ts";
import { freePort } from "../support/prometheus-server.ts";
import application, { Billed, reports, Slow } from "./billing-app.ts";
import { local, type Situation } from "./situation.ts";

const main = fileURLToPath(new URL("../../../src/cli/main.ts", import.meta.url));
const app = fileURLToPath(new URL("billing-app.ts", import.meta.url));

/** Two workers of a service on PostgreSQL alone. One is killed over reports that never end; everything is sent twice. */
export async function workerKilled(): Promise<Situation> {
  const database = await createDatabase({ migrated: true, leakGuard: false });
  const bus = application(database.url);
  const { port } = await bus.run({ port: 0 });
  const remotePort = await freePort();
  let worker = await startWorker(database.url, remotePort);
  let n = 0;
  const bill = (): Promise<unknown> => bus.transaction((tx) => tx.publish(Billed, { n: ++n }));
  const from = new Date();
  for (let i = 0; i < 10; i++) await bill();
  const to = new Date();
  const load = new Load(200, bill);
  let again: Load | undefined;
  return {
    alerts: [
      "ConsumerHighDuplicateRate",
      "ConsumerHandlerStuck",
      "ConsumerCrashSuspect",
      "WorkerDied",
      "WorkerDown",
      "WorkersGone",
    ],
    targets: { billing: local(port), "billing-remote": local(remotePort) },
    cause: async () => {
      again = new Load(500, () => bus.republish({ from, to }));
      await bus.transaction(async (tx) => {
        for (let i = 0; i < 8; i++) await tx.publish(Slow, { n: i });
      });
      const runs = "select 1 from sagabox.running where member like 'remote.%' and consumer = 'reports'";
      await until(async () => (await database.pool.query(runs)).rowCount === 1, 10_000);
      await kill(worker);
    },
    repair: async () => {
      await again?.stop();
      reports.hang = false;
      worker = await startWorker(database.url, remotePort, { ANSWER: "yes" });
    },
    end: async () => {
      await again?.stop();
      await load.stop();
      await kill(worker);
      await bus.stop();
      await database.drop();
    },
  };
}

async function startWorker(
  database: string,
  port: number,
  env: Record<string, string> = {},
): Promise<ChildProcess> {
  const loader = ["--import", import.meta.resolve("tsx"), "--conditions=sagabox:source"];
  const child = spawn(process.execPath, [...loader, main, "worker", "--app", app, "--port", String(port)], {
    env: {
      PATH: process.env["PATH"],
      HOME: process.env["HOME"],
      DATABASE_URL: database,
      WORKER_ID: "remote",
      ...env,
    },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let complaint = "";
  child.stderr.on("data", (chunk: Buffer) => (complaint += chunk.toString()));
  const answer = () => fetch(`http://${local(port)}/health/ready`).catch(() => undefined);
  await until(async () => (await answer())?.status === 200 || child.exitCode !== null, 60_000);
  if (child.exitCode !== null) throw new Error(`The worker ended with ${child.exitCode}: ${complaint}`);
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, "exit");
  child.kill("SIGKILL");
  await gone;
}
