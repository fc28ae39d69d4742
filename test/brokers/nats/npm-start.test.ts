import { expect, test } from "vitest";
import { Demo, demoFolder, isRunning } from "../../support/demo-process.ts";
import { until } from "../../support/relays.ts";
import { missing } from "./harness.ts";

test.skipIf(missing)(
  "npm start -- --transport nats: the shop runs on a broker that comes and goes with it",
  async () => {
    const demo = new Demo(demoFolder(), "--transport", "nats");
    await demo.ready();
    expect(demo.output).toMatch(/transport +NATS.*started for this run/i);
    const broker = demo.program("nats-server");
    expect(demo.isInReach(broker)).toBe(false); // so that Ctrl-C cannot end it before the shop
    const id = await demo.placeOrder();
    await until(async () => (await demo.order(id)).shipped > 0, 30_000);
    expect(await demo.order(id)).toMatchObject({ billed: 1, shipped: 1 });
    expect([await demo.interrupt(), demo.isAlive, await demo.postmaster()], demo.output).toEqual([
      0,
      false,
      undefined,
    ]);
    expect(isRunning(broker)).toBe(false);
    expect(demo.output).not.toMatch(/"level":"(warn|error)"/);
  },
  150_000,
);

test.skipIf(missing)(
  "npm start -- --transport nats: SIGTERM, and a second Ctrl-C when the first one hangs, leave nothing either",
  async () => {
    const folder = demoFolder();
    const first = new Demo(folder, "--transport", "nats");
    await first.ready();
    const broker = first.program("nats-server");
    expect([await first.terminate(), first.isAlive, await first.postmaster()], first.output).toEqual([
      0,
      false,
      undefined,
    ]);
    expect(isRunning(broker)).toBe(false);

    const second = new Demo(folder, "--transport", "nats");
    await second.ready();
    const stuck = second.program("nats-server");
    process.kill(stuck, "SIGSTOP"); // and so it cannot be stopped in peace
    second.pressCtrlC();
    const againAt = performance.now() + 1_200; // those within a second count as one
    await until(() => performance.now() > againAt);
    expect(await second.interrupt(), second.output).toBe(130);
    await until(async () => !isRunning(stuck) && (await second.postmaster()) === undefined, 30_000);
  },
  150_000,
);
