import { expect, test } from "vitest";
import { Demo, demoFolder } from "../../support/demo-process.ts";
import { until } from "../../support/relays.ts";
import { missing } from "./harness.ts";

test.skipIf(missing)(
  "npm start -- --transport nats: the shop runs on a broker that comes and goes with it",
  async () => {
    const demo = new Demo(demoFolder(), "--transport", "nats");
    await demo.ready();
    expect(demo.told).toMatch(/messages go by +NATS.*started for this run/i);
    const id = await demo.place();
    await until(async () => (await demo.order(id)).shipped > 0, 30_000);
    expect(await demo.order(id)).toMatchObject({ billed: 1, shipped: 1 });
    expect([await demo.interrupt(), demo.isAlive, await demo.postmaster()], demo.told).toEqual([
      0,
      false,
      undefined,
    ]);
  },
  150_000,
);
