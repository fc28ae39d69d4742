import { createBus, event, permanent, saga, type Bus } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../support/database.ts";
import { Runbook } from "../../support/runbook.ts";

vi.setConfig({ testTimeout: 60_000 });

const id = z.object({ id: z.string() });
const Placed = event("order.placed", { schema: id, key: (order) => order.id });

function closeAfterTest(bus: Bus): Bus {
  onTestFinished(async () => void (await bus.stop()));
  return bus;
}

test("G7, handler stuck: the hanging message is found, and the fixed handler carries it out", async () => {
  const { url, pool } = await temporaryDatabase({ migrated: true });
  const open = (): Bus =>
    closeAfterTest(
      createBus({ service: "shop", database: url, log: false, lease: "1s", shutdownTimeout: 2_000 }),
    );
  const broken = open();
  const options = {
    consumer: "books",
    deadline: 100,
    retry: { maxAttempts: 100, firstDelay: 50, maxDelay: 50 },
  };
  broken.on(Placed, options, () => new Promise<never>(() => undefined));
  await broken.migrate();
  await broken.run();
  const { id: message } = await broken.transaction((tx) => tx.publish(Placed, { id: "o-1" }));
  const book = new Runbook("handler-stuck", url);
  const listWaiting = async (): Promise<{ message_id: string; attempts: number }[]> => {
    const [sql = ""] = book.sql("First look", { consumer: "books" });
    return (await pool.query<{ message_id: string; attempts: number }>(sql)).rows;
  };
  await expect
    .poll(async () => (await listWaiting())[0]?.attempts ?? 0, { timeout: 20_000 })
    .toBeGreaterThan(0);
  expect((await listWaiting())[0]?.message_id).toBe(message);
  expect(await book.done("First look", { consumer: "books" })).toMatch(/^books /m);
  expect(await book.done("Look at one message", { "message-id": message })).toMatch(
    /did not finish within 100 ms/,
  );
  const [sql = ""] = book.sql("Look at one message", { "message-id": message });
  expect((await pool.query(sql)).rows).toMatchObject([{ status: "sent" }]);

  const one = { consumer: "books", "message-id": message };
  await expect
    .poll(async () => (await book.follow("Put it aside", one))[0]?.code, { timeout: 20_000 })
    .toBe(0);
  expect(await listWaiting()).toEqual([]);
  expect((await book.follow("Afterwards"))[0]).toMatchObject({ code: 3 });

  await broken.stop();
  const fixed = open();
  const seen: string[] = [];
  fixed.on(Placed, options, ({ data }) => void seen.push(data.id));
  await fixed.run();
  // It is refused until the consumer is seen to run, and says so.
  await expect
    .poll(async () => (await book.follow("Bring it back", one))[0]?.code, { timeout: 20_000 })
    .toBe(0);
  await expect.poll(() => seen, { timeout: 20_000 }).toEqual(["o-1"]);
  await expect.poll(() => book.done("Afterwards").catch(String), { timeout: 20_000 }).toContain("healthy");
  // What kills its process is rehearsed apart, with processes that die.
  expect(book.forgotten.filter((step) => !step.startsWith("If it kills the process: "))).toEqual([]);
});

test("G7, F10, saga stuck: the failed step is found; retry, settle and cancel bring each instance on", async () => {
  const { url, pool } = await temporaryDatabase({ migrated: true });
  let isBroken = true;
  const options = { version: 1, input: id, key: (input: { id: string }) => input.id };
  const delivery = saga("delivery", options)
    .tx("pay", () => "p1")
    .pivot()
    .run("ship", (): string => {
      if (isBroken) throw permanent("no carrier");
      return "parcel-1";
    });
  const waiting = saga("waiting", options)
    .tx("reserve", () => "r1")
    .undo(() => undefined)
    .waitFor("payment", Placed, { timeout: "1d" });
  const bus = closeAfterTest(
    createBus({ service: "shop", database: url, log: false, sagas: { pollInterval: 20 } }),
  );
  bus.register(delivery);
  bus.register(waiting);
  await bus.migrate();
  await bus.run();
  const begin = async (name: string): Promise<string> =>
    (await bus.transaction((tx) => bus.start(tx, delivery, { id: name }))).sagaId;
  const [first, second] = [await begin("one"), await begin("two")];
  const { sagaId: third } = await bus.transaction((tx) => bus.start(tx, waiting, { id: "three" }));
  await bus.transaction((tx) => tx.publish(Placed, { id: "one" }, { sagaId: first }));
  const book = new Runbook("saga-stuck", url);
  const isListed = async (): Promise<boolean> => {
    const look = await book.done("First look");
    return look.includes(first) && look.includes(second);
  };
  await expect.poll(isListed, { timeout: 20_000 }).toBe(true);
  expect(await book.done("Look at one saga", { "saga-id": first })).toContain("no carrier");
  const [sql = ""] = book.sql("Look at one saga", { "saga-id": first });
  expect((await pool.query(sql)).rows).toMatchObject([{ event_type: "order.placed" }]);

  const status = (saga: string) => async () =>
    (await book.follow("Afterwards", { "saga-id": saga }))[0]?.stdout;
  await book.done("Settle", { "saga-id": second, step: "ship", json: `'"by hand"'` });
  await expect.poll(status(second), { timeout: 20_000 }).toContain("completed");
  isBroken = false;
  await book.done("Retry", { "saga-id": first });
  await expect.poll(status(first), { timeout: 20_000 }).toContain("completed");
  await book.done("Cancel", { "saga-id": third });
  await expect.poll(status(third), { timeout: 20_000 }).toContain("compensated");
  expect(await book.done("Afterwards", { "saga-id": third })).toContain("No saga is stuck.");
  expect(book.forgotten).toEqual([]);
});
