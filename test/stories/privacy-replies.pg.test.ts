import { command, isErased, isEncrypted, saga } from "sagabox";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { canaries, subjectsBus, subjectsDatabase, wholeDatabase } from "../support/data-subjects.ts";

vi.setConfig({ testTimeout: 60_000 });

const Lookup = command("people.lookup", {
  schema: z.object({ customerId: z.string() }),
  reply: z.object({ address: z.object({ city: z.string() }), plan: z.string() }),
  personal: { subject: ({ customerId }) => customerId, fields: ["customerId"], reply: ["address"] },
});

const answer = { address: { city: "Canaryville" }, plan: "gold" };

test("C6: the personal fields of a reply are sealed in the reply, the inbox and the table, and opened for who asked", async () => {
  const database = await subjectsDatabase(30);
  const bus = subjectsBus(database);
  bus.on(Lookup, { consumer: "lookup" }, () => answer);
  await bus.run();
  const reply = await bus.request(Lookup, { customerId: "c-ada" }, { timeout: "20s", id: "ask-1" });
  expect(reply).toEqual(answer);
  const text = await wholeDatabase(database);
  expect(canaries.filter((canary) => text.includes(canary))).toEqual([]);
  expect(text).toContain("gold");
  await bus.privacy.erase("c-ada", { reason: "request" });
  const again = await bus.request(Lookup, { customerId: "c-ada" }, { timeout: "20s", id: "ask-1" });
  expect([isErased(again.address), again.plan]).toEqual([true, "gold"]);
});

test("C6: the stored reply for the requester is encrypted", async () => {
  const database = await subjectsDatabase(40);
  const bus = subjectsBus(database);
  bus.on(Lookup, { consumer: "lookup" }, () => answer);
  await bus.run();
  await bus.request(Lookup, { customerId: "c-ada" }, { timeout: "20s", id: "ask-2" });
  await bus.stop();
  const stored = await database.pool.query<{ body: string }>("select body from sagabox.reply");
  const { reply } = JSON.parse(stored.rows[0]?.body ?? "") as { reply: { address: unknown } };
  expect(isEncrypted(reply.address)).toBe(true);
});

test("C6: a saga works with the opened reply and keeps it sealed", async () => {
  const database = await subjectsDatabase(30);
  const bus = subjectsBus(database);
  const subject = ({ customerId }: { customerId: string }): string => customerId;
  const asking = saga("asking", {
    version: 1,
    input: z.object({ customerId: z.string() }),
    key: subject,
    personal: { subject },
  })
    .send("lookup", Lookup, ({ input }) => input)
    .noUndo("a question")
    .run("use", ({ steps }) => ({ city: (steps.lookup.address as { city: string }).city }))
    .noUndo("nothing");
  bus.register(asking);
  bus.on(Lookup, { consumer: "lookup" }, () => answer);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, asking, { customerId: "c-ada" }));
  await expect.poll(async () => (await bus.sagas.show(sagaId)).status, { timeout: 20_000 }).toBe("completed");
  expect((await bus.sagas.show(sagaId)).steps.at(-1)?.result).toEqual({ city: "Canaryville" });
  const text = await wholeDatabase(database);
  expect(canaries.filter((canary) => text.includes(canary))).toEqual([]);
});
