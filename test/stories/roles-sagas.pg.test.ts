import { command, event, permanent, saga } from "sagabox";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { cliInProcess } from "../support/run-cli.ts";
import { until } from "../support/relays.ts";
import { rolesHarness } from "../support/roles-harness.ts";

vi.setConfig({ testTimeout: 90_000 });

const Order = z.object({ id: z.string(), name: z.string().default("CANARY") });
const Placed = event("order.placed", { schema: Order, key: ({ id }) => id });
const Reserve = command("stock.reserve", { schema: Order, reply: z.object({ shelf: z.string() }) });
const Release = command("stock.release", { schema: Order });
const Paid = event("order.paid", { schema: Order, key: ({ id }) => id });
const order = saga("order", { version: 1, input: Order, key: ({ id }) => id })
  .send("reserve", Reserve, (c) => c.input)
  .undo(Release, (c) => c.input)
  .waitFor("paid", Paid, { timeout: "1h" })
  .run("check", (c) => {
    if (c.input.id.startsWith("odd")) throw permanent("CANARY is odd");
    return 1;
  })
  .noUndo("it only looks");

test("G10, E4: a saga runs under its role, and an operator decides about it through the command line", async () => {
  const harness = await rolesHarness();
  const owner = await harness.bus(["owner"]);
  await owner.migrate();
  const relay = await harness.bus(["relay"]);
  await relay.run({ parts: ["relay"] });
  const stock = await harness.bus(["consumer"], { service: "stock" });
  stock.on(Reserve, { consumer: "stock" }, () => ({ shelf: "A" }));
  stock.on(Release, { consumer: "stock" }, () => undefined);
  await stock.run({ parts: ["consumers"] });
  const sagas = await harness.bus(["saga"]);
  sagas.register(order);
  await sagas.run({ parts: ["sagas"] });
  const starter = await harness.bus(["saga"]);
  starter.register(order);
  const started = await starter.transaction(async (tx) => ({
    fine: await starter.start(tx, order, { id: "fine", name: "x" }),
    odd: await starter.start(tx, order, { id: "odd", name: "x" }),
    given: await starter.start(tx, order, { id: "given", name: "x" }),
  }));
  const status = async (id: string, wanted: string) =>
    harness.count("saga_instance", `id = '${id}' and status = '${wanted}'`);
  const waits = "waits_for like 'wait%'";
  await until(async () => (await harness.count("saga_instance", waits)) === 3);
  const writer = await harness.bus(["writer"]);
  await writer.transaction(async (tx) => {
    await tx.publish(Paid, { id: "fine" });
    await tx.publish(Paid, { id: "odd" });
  });
  await until(async () => (await status(started.fine.sagaId, "completed")) === 1);
  const env = { DATABASE_URL: await harness.login("operator") };
  const cli = (...args: string[]) => cliInProcess(["saga", ...args], env);
  const why = ["--actor", "ann", "--reason", "ticket 7"];
  expect(await cli("cancel", started.given.sagaId, "--yes", ...why)).toMatchObject({ code: 0, stderr: "" });
  await until(async () => (await status(started.given.sagaId, "compensated")) === 1);
  for (const args of [["list"], ["show", started.fine.sagaId], ["history", started.fine.sagaId], ["stuck"]]) {
    expect(await cli(...args), args.join(" ")).toMatchObject({ code: 0, stderr: "" });
  }
  const operator = await harness.bus(["operator"]);
  expect(await operator.sagas.incidents()).toEqual([]);
  const refused = await cli("cancel", started.fine.sagaId, "--yes", ...why);
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining("SAGA_ACTION_REFUSED") });
  const viewer = { DATABASE_URL: await harness.login("viewer") };
  const denied = await cliInProcess(["saga", "list"], viewer);
  expect(denied.stderr).toMatch(/^sagabox: .*needs the operator role.*\[STORAGE_PERMISSION_DENIED\]\n$/);
  expect(harness.troubles()).toEqual([]);
});

test("G10: one worker role does it all, sending at once what it wrote, beside an owner's upkeep", async () => {
  const harness = await rolesHarness(["optimistic", "overflow"]);
  const owner = await harness.bus(["owner"]);
  await owner.migrate();
  await owner.run({ parts: ["upkeep"] });
  const worker = await harness.bus(["worker"], { outbox: { overflow: { maxPending: 1_000 } } });
  const seen: string[] = [];
  worker.on(Placed, { consumer: "books" }, ({ data }) => void seen.push(data.id));
  worker.register(order);
  await worker.run({ parts: ["relay", "consumers", "sagas"] });
  const writer = await harness.bus(["writer"], { outbox: { overflow: { maxPending: 1_000 } } });
  await writer.transaction((tx) => tx.publish(Placed, { id: "now" }));
  await until(() => seen.length === 1);
  expect(harness.observer.of("optimistic.succeeded").length).toBeGreaterThan(0);
  expect(harness.troubles()).toEqual([]);
  expect(harness.observer.of("optimistic.failed")).toEqual([]);
});
