import { expect, onTestFinished, test, vi } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { createBus } from "./create-bus.ts";

async function setup(environment: Readonly<Record<string, string>>) {
  const { pool } = await temporaryDatabase({ migrated: true, max: 20 });
  for (const [name, value] of Object.entries(environment)) vi.stubEnv(name, value);
  const bus = createBus({ service: "shop", database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  return bus;
}

test("G11: SAGABOX_PORT opens the server of a bus that is run without a port", async () => {
  const bus = await setup({ SAGABOX_PORT: "0" });
  const { port } = await bus.run();
  expect(port).toBeGreaterThan(0);
  expect((await fetch(`http://127.0.0.1:${port}/health/live`)).status).toBe(200);
});

test("a bus that is run without a port, or with false, serves nothing", async () => {
  expect(await (await setup({})).run()).toEqual({ port: undefined });
  expect(await (await setup({ SAGABOX_PORT: "0" })).run({ port: false })).toEqual({ port: undefined });
});

test("G11: SAGABOX_HOST is where a bus listens whose code gives only a port, and code goes before it", async () => {
  const bus = await setup({ SAGABOX_HOST: "203.0.113.7" }); // nobody's, so nobody can listen there
  const refused = {
    code: "LISTEN_FAILED",
    message: expect.stringMatching(/203\.0\.113\.7.*`host`.*SAGABOX_HOST/),
  };
  await expect(bus.run({ port: 0 })).rejects.toMatchObject(refused);
  expect((await bus.run({ port: 0, host: "127.0.0.1" })).port).toBeGreaterThan(0);
});
