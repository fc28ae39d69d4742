import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createBus, event } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../support/database.ts";
import { program } from "../../support/programs.ts";
import { Runbook } from "../../support/runbook.ts";

vi.setConfig({ testTimeout: 180_000 });

const Placed = event("order.placed", { schema: z.object({ id: z.string() }), key: ({ id }) => id });
const file = program(new URL("./killing-worker.ts", import.meta.url));

/** Starts a worker again whenever it dies, as Kubernetes would. */
function keepRunning(url: string) {
  let [deaths, stopped] = [0, false];
  let child: ChildProcess | undefined;
  const running = (async () => {
    while (!stopped) {
      child = spawn(process.execPath, [file, url], { stdio: "inherit" });
      await once(child, "exit");
      if (!stopped) deaths += 1;
    }
  })();
  const stop = async (): Promise<void> => {
    stopped = true;
    child?.kill("SIGKILL");
    await running;
  };
  onTestFinished(stop);
  return { stop, deaths: () => deaths };
}

test("G7, handler stuck: a message that kills its process is found out and set aside, and the fixed handler carries it out", async () => {
  const { url, pool } = await temporaryDatabase({ migrated: true, leakGuard: false });
  await pool.query("create table booked (id text)");
  const listBooked = async (): Promise<string[]> =>
    (await pool.query<{ id: string }>("select id from booked order by id")).rows.map(({ id }) => id);
  const open = () => {
    const bus = createBus({ service: "shop", database: url, log: false, lease: "1s" });
    onTestFinished(async () => void (await bus.stop()));
    return bus;
  };
  const { id: message } = await open().transaction(async (tx) => {
    const deadly = await tx.publish(Placed, { id: "deadly" });
    await tx.publish(Placed, { id: "harmless" });
    return deadly;
  });
  const worker = keepRunning(url);
  const book = new Runbook("handler-stuck", url);
  const fill = { consumer: "books", "message-id": message };
  const poisonous = () => book.step("If it kills the process", 0, fill, "--json");
  await expect.poll(async () => (await poisonous()).stdout, { timeout: 120_000 }).toContain(message);
  expect(worker.deaths()).toBe(4);
  const { deadLetters: letters } = JSON.parse((await poisonous()).stdout) as {
    deadLetters: { id: string }[];
  };
  expect(letters).toHaveLength(1);
  expect(await book.done("If it kills the process", { ...fill, letter: letters[0]?.id ?? "" })).toContain(
    "MESSAGE_KILLS_PROCESS",
  );
  await expect.poll(listBooked, { timeout: 20_000 }).toEqual(["harmless"]);
  const look = await book.done("First look", fill);
  expect(look).toMatch(/poison[^]*MESSAGE_KILLS_PROCESS/);
  for (const sql of book.sql("First look", fill)) expect((await pool.query(sql)).rows).toEqual([]);
  expect(await book.done("Look at one message", fill)).toMatch(/consumer books: dead[^]*died 3 times/);
  for (const sql of book.sql("Look at one message", fill)) {
    expect((await pool.query(sql)).rows).toMatchObject([{ status: "sent" }]);
  }

  await worker.stop();
  const fixed = open();
  fixed.on(
    Placed,
    { consumer: "books", from: "beginning" },
    async ({ data }, { tx }) => void (await tx.query("insert into booked (id) values ($1)", [data.id])),
  );
  await fixed.run();
  // It is refused until the consumer is seen to run, and says so.
  await expect
    .poll(async () => (await book.follow("Bring it back", fill))[0]?.code, { timeout: 20_000 })
    .toBe(0);
  await expect.poll(listBooked, { timeout: 20_000 }).toEqual(["deadly", "harmless"]);
  await expect.poll(() => book.done("Afterwards").catch(String), { timeout: 20_000 }).toContain("healthy");
  // It puts itself aside; doing so by hand is rehearsed with a message that hangs.
  expect(book.forgotten).toEqual([expect.stringMatching(/^Put it aside: /)]);
});
