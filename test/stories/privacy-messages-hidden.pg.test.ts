import { command, isErased } from "sagabox";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { subjectsBus, subjectsDatabase, testKeyRing } from "../support/data-subjects.ts";

vi.setConfig({ testTimeout: 60_000 });

const Locate = command("people.locate", {
  schema: z.object({ email: z.string() }),
  reply: z.object({ address: z.string(), zone: z.number() }),
  personal: { subject: ({ email }) => email, fields: ["email"], reply: ["address"] },
});

test("C6: a command whose person is named by an erased field is answered as erased, and is no dead letter", async () => {
  const database = await subjectsDatabase(30);
  const bus = subjectsBus(database, { privacy: { keys: testKeyRing(), cacheTtl: 0 } });
  const options = { consumer: "locator", retry: { maxAttempts: 2 } };
  bus.on(Locate, options, async ({ data: { email } }) => {
    if (isErased(email)) return { address: "Canary Street", zone: 7 };
    await bus.privacy.erase("ada@canary.example", { reason: "request" });
    throw new Error("try again");
  });
  await bus.run();
  const reply = await bus.request(Locate, { email: "ada@canary.example" }, { timeout: "20s" });
  expect([isErased(reply.address), reply.zone]).toEqual([true, 7]);
  expect(await bus.deadLetters.list()).toEqual([]);
  const { rows } = await database.pool.query<{ result: string }>("select result from sagabox.consumer_inbox");
  expect(JSON.stringify(rows)).not.toContain("Canary Street");
});

test("C6: the copy for a person has the sealed replies in it, opened", async () => {
  const database = await subjectsDatabase(30);
  const bus = subjectsBus(database);
  bus.on(Locate, { consumer: "locator" }, () => ({ address: "Canary Street", zone: 7 }));
  await bus.run();
  await bus.request(Locate, { email: "ada@canary.example" }, { timeout: "20s" });
  const read = async (): Promise<unknown[]> => {
    const lines: unknown[] = [];
    for await (const line of bus.privacy.export("ada@canary.example", { reason: "request" })) {
      const { reply } = line.data as { reply?: unknown };
      lines.push(reply ?? line.type);
    }
    return lines;
  };
  expect(await read()).toEqual(["people.locate", { address: "Canary Street", zone: 7 }]);
  await bus.privacy.erase("ada@canary.example", { reason: "request" });
  expect(await read()).toEqual(["people.locate", { address: { $erased: true }, zone: 7 }]);
});
