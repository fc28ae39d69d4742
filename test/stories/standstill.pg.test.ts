import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { createBus, event } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../support/database.ts";
import { until } from "../support/relays.ts";

const worker = fileURLToPath(new URL("./standstill-worker.ts", import.meta.url));
const Happened = event("happened", { schema: z.object({ n: z.number(), waits: z.boolean() }) });
const WAITING = 16;
const MORE = 600; // enough for every lane

/** The process, and how often it has said what. */
function startWorker(url: string) {
  const args = ["--conditions=sagabox:source", "--import", import.meta.resolve("tsx"), worker, url];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "ignore"] });
  const ended = once(child, "exit");
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const said = new Map<string, number>();
  createInterface({ input: child.stdout }).on("line", (line) => said.set(line, (said.get(line) ?? 0) + 1));
  return { child, ended, said: (line: string): number => said.get(line) ?? 0 };
}

test("a consumer that stood still past its lease, with handlers past their deadline, reads all its lanes again", async () => {
  const { pool, url } = await temporaryDatabase({ migrated: true });
  await pool.query("create table effect (n integer not null)");
  const bus = createBus({ service: "source", database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  const publish = (from: number, count: number, waits: boolean): Promise<void> =>
    bus.transaction(async (tx) => {
      for (let n = from; n < from + count; n++) await tx.publish(Happened, { n, waits }, { key: `${n}` });
    });
  const { child, ended, said } = startWorker(url);
  await until(() => said("ready") === 1);
  await publish(0, WAITING, true);
  await until(() => said("waiting") === WAITING);

  child.kill("SIGSTOP");
  const over = "select from sagabox.member where lease_until > clock_timestamp() - interval '500 ms'";
  await until(async () => (await pool.query(over)).rowCount === 0);
  child.kill("SIGCONT");

  await publish(WAITING, MORE, false);
  const listHandled = async () => (await pool.query<{ n: number }>("select n from effect order by n")).rows;
  await until(async () => (await listHandled()).length >= WAITING + MORE, 20_000);
  child.kill("SIGTERM");
  await ended;
  expect((await listHandled()).map(({ n }) => n)).toEqual(
    Array.from({ length: WAITING + MORE }, (_, n) => n),
  );
}, 60_000);
