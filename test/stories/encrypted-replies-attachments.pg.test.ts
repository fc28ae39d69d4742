import { command, event, isAttachment, saga, type Attachment } from "sagabox";
import { fileStore } from "sagabox/claim-check";
import { expect, test } from "vitest";
import { z } from "zod";
import { testKeyRing } from "../support/data-subjects.ts";
import { until } from "../support/relays.ts";
import { payloadHarness, temporaryFolder } from "../support/stores/payload-harness.ts";

const subject = ({ who }: { who: string }): string => who;
const file = z.custom<Attachment>(isAttachment);
const Person = z.object({ who: z.string() });
const because = { reason: "request 17", actor: "clerk" };

const Fetch = command("passport.fetch", {
  schema: Person,
  reply: z.object({ scan: file, note: z.string() }),
  personal: { subject, fields: ["who"], reply: ["scan", "note"] },
});

async function createHarness() {
  const store = fileStore({ folder: await temporaryFolder() });
  return payloadHarness({ claimCheck: { store, threshold: 20_000 }, privacy: { keys: testKeyRing() } });
}

test("an attachment in a sealed field of a reply is kept as long as the reply is", async () => {
  const { bus, open, pool, age, counts } = await createHarness();
  const scan = await bus.attach(Buffer.from("PASSPORT"), { subject: "ada" });
  bus.on(Fetch, { consumer: "desk" }, () => ({ scan, note: "found" }));
  await bus.run();
  const reply = await bus.request(Fetch, { who: "ada" }, { timeout: "20s" });
  expect(reply).toEqual({ scan, note: "found" });
  await bus.stop();
  const { payloads } = open();
  await age(100);
  await pool.query("delete from sagabox.message where type <> 'sagabox.reply'");
  expect(await payloads.collect()).toMatchObject({ unneeded: 0, finished: true });
  expect(await counts()).toMatchObject({ blob: 1, use: 1 });
  await pool.query("delete from sagabox.message");
  expect(await payloads.collect()).toMatchObject({ unneeded: 1 });
});

test("C6: an encrypted reply in a store is exported with the rest, and shown as erased afterwards", async () => {
  const { bus, pool } = await createHarness();
  const scan = await bus.attach(Buffer.from("PASSPORT"), { subject: "ada" });
  const note = "canary ".repeat(5_000);
  bus.on(Fetch, { consumer: "desk" }, () => ({ scan, note }));
  await bus.run();
  expect(await bus.request(Fetch, { who: "ada" }, { timeout: "20s" })).toEqual({ scan, note });
  const { rows } = await pool.query<{ data: string }>(
    "select data from sagabox.message where type = 'sagabox.reply'",
  );
  expect(rows[0]?.data).toMatch(/^{"\$claim":/);
  const replies = async (): Promise<unknown[]> => {
    const found: unknown[] = [];
    for await (const { type, data } of bus.privacy.export("ada", because))
      if (type === "sagabox.reply") found.push((data as { reply: unknown }).reply);
    return found;
  };
  expect(await replies()).toEqual([{ scan, note }]);
  await bus.privacy.erase("ada", because);
  expect(await replies()).toEqual([{ scan: { $erased: true }, note: { $erased: true } }]);
});

test("an attachment in pending input of a saga is kept, encrypted or not, until the saga is forgotten", async () => {
  const { bus, open, pool, age } = await createHarness();
  const Scanned = event("passport.scanned", {
    schema: Person.extend({ scan: file }),
    personal: { subject, fields: ["scan"] },
  });
  const entry = (version: number) =>
    saga("entry", { version, input: Person, key: subject, personal: { subject } }).waitFor("scan", Scanned, {
      timeout: "10d",
      by: subject,
    });
  const [first, second] = [entry(1), entry(2)];
  bus.register(first);
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, first, { who: "ada" }));
  const modern = open({ worker: "modern" });
  modern.register(second);
  await modern.run();
  const scan = await modern.attach(Buffer.from("PASSPORT"));
  await modern.transaction((tx) => tx.publish(Scanned, { who: "ada", scan }));
  await until(async () => (await pool.query("select from sagabox.saga_input")).rowCount === 1);
  await modern.stop();
  await age(100);
  await pool.query("delete from sagabox.queue; delete from sagabox.outbox; delete from sagabox.message");
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 0 });
  const uses = await pool.query("select used_by from sagabox.blob_use where used_by like 'saga:%'");
  expect(uses.rows).toEqual([{ used_by: `saga:${sagaId}` }]);
  await pool.query("delete from sagabox.saga_instance");
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 1 });
});
