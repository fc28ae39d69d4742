import { command, event, saga, type Attachment } from "sagabox";
import { expect, test } from "vitest";
import { z } from "zod";
import { testKeyRing } from "../support/data-subjects.ts";
import { payloadHarness } from "../support/stores/payload-harness.ts";

const LONG_AGO = 100;
const forgetMessages = "delete from sagabox.queue; delete from sagabox.outbox; delete from sagabox.message";
const subject = ({ customerId }: { customerId: string }): string => customerId;
const Person = z.object({ customerId: z.string(), file: z.custom<Attachment>() });
const personal = { subject, fields: ["file"] } as const;
const Filed = command("person.filed", { schema: Person, personal });
const Signed = event("person.signed", { schema: Person, key: subject, personal });
const createHarness = () => payloadHarness({ privacy: { keys: testKeyRing() } });

test("an attachment in a sealed field is kept as long as its message, and cannot be published once it is gone", async () => {
  const { bus, age, counts, pool } = await createHarness();
  const file = await bus.attach(Buffer.from("contract"), { subject: "c-17" });
  await bus.transaction((tx) => tx.publish(Filed, { customerId: "c-17", file }, { delay: "200d" }));
  const { rows } = await pool.query<{ data: string }>("select data from sagabox.scheduled");
  expect(rows[0]?.data).not.toContain("$attachment");
  await age(LONG_AGO);
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 0 });
  expect(await counts()).toMatchObject({ blob: 1, use: 1 });
  await pool.query("delete from sagabox.scheduled");
  await age(200); // the retention counts from when the message was due
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 1 });
  const late = bus.transaction((tx) => tx.publish(Filed, { customerId: "c-17", file }));
  await expect(late).rejects.toMatchObject({ code: "CLAIM_MISSING" });
});

test("a large payload with an attachment in a sealed field keeps both", async () => {
  const { bus, age, counts, pool } = await payloadHarness({
    privacy: { keys: testKeyRing() },
    claimCheck: { threshold: 1_024 },
  });
  const Long = command("person.described", { schema: Person.extend({ text: z.string() }), personal });
  const file = await bus.attach(Buffer.from("contract"));
  const text = "x".repeat(5_000);
  await bus.transaction((tx) => tx.publish(Long, { customerId: "c-17", file, text }));
  expect(await counts()).toMatchObject({ blob: 2, use: 2 });
  await age(LONG_AGO);
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 0 });
  await pool.query(forgetMessages);
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 2 });
});

test("a saga about a person keeps what it began with and what it got later, until it is forgotten", async () => {
  const { bus, open, age, counts, pool } = await createHarness();
  const Sign = saga("sign", { version: 1, input: Person, key: subject, personal: { subject } })
    .waitFor("signed", Signed, { timeout: "300d" })
    .delay("rest", "300d");
  bus.register(Sign);
  await bus.run();
  const first = await bus.attach(Buffer.from("contract"), { subject: "c-17" });
  const second = await bus.attach(Buffer.from("signed contract"));
  const start = { customerId: "c-17", file: first };
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, Sign, start));
  await bus.transaction((tx) => tx.publish(Signed, { customerId: "c-17", file: second }));
  await expect.poll(async () => (await bus.sagas.show(sagaId)).waitsFor).toBe("delay: rest");
  await bus.stop();
  const { rows } = await pool.query<{ held: string }>(
    "select input::text || state::text as held from sagabox.saga_instance",
  );
  expect(rows[0]?.held).not.toContain("$attachment");
  await age(LONG_AGO);
  await pool.query(forgetMessages);
  expect(await open().payloads.collect()).toMatchObject({ unneeded: 0 });
  expect(await counts()).toMatchObject({ blob: 2 });
  await pool.query("delete from sagabox.saga_instance");
  expect(await open().payloads.collect()).toMatchObject({ unneeded: 2 });
});
