import { event, isErased, type DataOf } from "sagabox";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { ada, Registered, testKeyRing } from "../support/data-subjects.ts";
import { until } from "../support/relays.ts";
import { rolesHarness } from "../support/roles-harness.ts";

vi.setConfig({ testTimeout: 90_000 });

const Drawn = event("picture.drawn", { schema: z.object({ n: z.number(), text: z.string() }) });

async function setup() {
  const harness = await rolesHarness();
  const options = { privacy: { keys: testKeyRing() }, claimCheck: { threshold: 10_000 } };
  const owner = await harness.bus(["owner"], options);
  await owner.migrate();
  await owner.run({ parts: ["upkeep"] });
  const relay = await harness.bus(["relay"], options);
  await relay.run({ parts: ["relay"] });
  const consumer = await harness.bus(["consumer"], options);
  const people: DataOf<typeof Registered>[] = [];
  const pictures: string[] = [];
  consumer.on(Registered, { consumer: "people" }, ({ data }) => void people.push(data));
  consumer.on(Drawn, { consumer: "pictures" }, ({ data }) => void pictures.push(data.text));
  await consumer.run({ parts: ["consumers"] });
  return { harness, options, people, pictures };
}

test("G10, C5: a writer stores large payloads that it cannot read, and a consumer reads them", async () => {
  const { harness, options, pictures } = await setup();
  const writer = await harness.bus(["writer"], options);
  const text = "x".repeat(300_000);
  await writer.transaction((tx) => tx.publish(Drawn, { n: 1, text }));
  await until(() => pictures.length === 1);
  expect(pictures[0]).toBe(text);
  const pool = await harness.as("writer");
  await expect(pool.query("select bytes from sagabox.blob_chunk")).rejects.toThrow("permission denied");
  expect(harness.troubles()).toEqual([]);
});

test("G10, C6: a writer seals, a consumer opens, and only the privacy role erases, holds and hands out", async () => {
  const { harness, options, people } = await setup();
  const writer = await harness.bus(["writer"], options);
  await writer.transaction((tx) => tx.publish(Registered, ada));
  await until(() => people.length === 1);
  expect(people[0]?.email).toBe(ada.email);
  const officer = await harness.bus(["privacy"], options);
  const because = { reason: "request 17", actor: "clerk" };
  expect(await officer.privacy.hold("c-ada", because)).toBe(true);
  await expect(officer.privacy.erase("c-ada", because)).rejects.toThrow();
  expect(await officer.privacy.release("c-ada", because)).toBe(true);
  const report = await officer.privacy.erase("c-ada", because);
  expect(report).toMatchObject({ outcome: "erased", keysDestroyed: 1 });
  const handedOut: unknown[] = [];
  for await (const { data } of officer.privacy.export("c-ada", because)) handedOut.push(data);
  expect(handedOut.map((data) => isErased((data as { email: unknown }).email))).toContain(true);
  expect(await officer.privacy.rewrap()).toBeDefined();
  expect(await officer.privacy.status()).toBeDefined();
  const other = await harness.bus(["operator"], options);
  await expect(other.privacy.erase("c-bob", because)).rejects.toMatchObject({
    code: "STORAGE_PERMISSION_DENIED",
    message: expect.stringContaining("the privacy role"),
  });
  expect(harness.troubles()).toEqual([]);
});
