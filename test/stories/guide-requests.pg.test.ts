// The code in docs/guides/requests.md is cut from examples/guides; here it runs.
import { createBus, permanent, type Bus } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import * as consuming from "../../examples/guides/consuming.ts";
import { ReserveStock } from "../../examples/guides/contracts.ts";
import * as requests from "../../examples/guides/requests.ts";
import { temporaryDatabase, type TemporaryDatabase } from "../support/database.ts";

async function setup(): Promise<TemporaryDatabase & { bus: Bus }> {
  const database = await temporaryDatabase({ max: 40 });
  await database.pool.query("create table guide_reservation (id text not null, sku text not null)");
  const bus = createBus({ service: "guide", database: database.pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  await bus.migrate();
  return { ...database, bus };
}

test("stock is requested and reserved, once per id, also when the first request got no reply", async () => {
  const { pool, bus } = await setup();
  await bus.run();
  expect(await requests.tryToReserve(bus, "refused", "tea").catch(String)).toBe("unknown");
  const stock = createBus({ service: "stock", database: pool, log: false });
  onTestFinished(async () => void (await stock.stop()));
  consuming.reserveStock(stock);
  await stock.run();
  expect(await requests.reserve(bus, "a", "tea")).toBe("r-a");
  expect(await requests.reserveOnce(bus, "b", "tea")).toBe("r-b");
  expect(await requests.reserveOnce(bus, "b", "tea")).toBe("r-b");
  expect((await pool.query("select id from guide_reservation order by 1")).rows.map((row) => row.id)).toEqual(
    ["r-a", "r-b", "r-refused"],
  );
});

test("a failed command is reported with its reason", async () => {
  const { bus } = await setup();
  bus.on(ReserveStock, { consumer: "stock" }, () => {
    throw permanent("the shelf is empty");
  });
  await bus.run();
  expect(await requests.tryToReserve(bus, "a", "tea")).toBe("failed: rejected");
});
