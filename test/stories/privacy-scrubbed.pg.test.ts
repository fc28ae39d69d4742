import { command, permanent } from "sagabox";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { ada, subjectsBus, subjectsDatabase, Registered } from "../support/data-subjects.ts";
import { RecordingObserver } from "../support/recording-observer.ts";

vi.setConfig({ testTimeout: 60_000 });

const because = { reason: "request 17", actor: "clerk" };
const bob = { ...ada, customerId: "c-bob", plan: "silver" };
const Lookup = command("people.lookup", {
  schema: z.object({ customerId: z.string() }),
  reply: z.object({ city: z.string(), plan: z.string() }),
  personal: { subject: ({ customerId }) => customerId, fields: ["customerId"], reply: ["city"] },
});

test("C6: an erasure removes every result in clear, in any form, and leaves what is encrypted", async () => {
  const database = await subjectsDatabase(40);
  const observer = new RecordingObserver();
  const bus = subjectsBus(database, { observers: [observer] });
  const results = {
    total: { $total: "c-ada owes 7" },
    alike: { $sealed: "c-ada" },
    plain: { owes: "c-ada" },
  };
  for (const [consumer, result] of Object.entries(results)) bus.on(Registered, { consumer }, () => result);
  bus.on(Lookup, { consumer: "lookup" }, () => ({ city: "Canaryville", plan: "gold" }));
  await bus.run();
  await bus.transaction((tx) => tx.publish(Registered, ada));
  await bus.request(Lookup, { customerId: "c-ada" }, { timeout: "20s" });
  await observer.until("consumer.processed", 4);
  const { scrubbed } = await bus.privacy.erase("c-ada", because);
  expect(scrubbed).toMatchObject({ results: 3 });
  const { rows } = await database.pool.query<{ consumer: string; result: string }>(
    "select consumer_name as consumer, result from sagabox.consumer_inbox where result is not null order by consumer",
  );
  const erased = '{"$erased":true}';
  expect(rows).toEqual([
    { consumer: "alike", result: erased },
    { consumer: "lookup", result: expect.stringMatching(/^{"city":{"\$sealed":"1\..+"},"plan":"gold"}$/) },
    { consumer: "plain", result: erased },
    { consumer: "total", result: erased },
  ]);
});

test("C6: an erasure removes the errors of messages that will be retried, and no others", async () => {
  const database = await subjectsDatabase(40);
  const observer = new RecordingObserver();
  const bus = subjectsBus(database, { observers: [observer] });
  const retry = { maxAttempts: 3, firstDelay: "1h", maxDelay: "1h" } as const;
  bus.on(Registered, { consumer: "mail", retry }, ({ data }) => {
    throw new Error(`customer ${data.customerId} moved`);
  });
  await bus.run();
  for (const who of [ada, bob]) await bus.transaction((tx) => tx.publish(Registered, who));
  await observer.until("consumer.retried", 2);
  const { scrubbed } = await bus.privacy.erase("c-ada", because);
  expect(scrubbed).toMatchObject({ errors: 1 });
  const { rows } = await database.pool.query<{ last_error: string }>(
    "select last_error from sagabox.queue where last_error is not null order by last_error",
  );
  expect(rows.map(({ last_error }) => last_error)).toEqual([
    "[erased]",
    expect.stringContaining("customer c-bob moved"),
  ]);
});

test("C6: an erasure removes the errors of messages that could not be sent", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, { outbox: { optimistic: false } });
  for (const who of [ada, bob])
    await bus.transaction((tx) => tx.publish(Registered, who, { id: who.customerId }));
  await database.pool.query(
    "update sagabox.outbox set attempts = 1, last_error = 'refused: ' || message_id where message_id like 'c-%'",
  );
  expect((await bus.privacy.erase("c-ada", because)).scrubbed).toMatchObject({ errors: 1 });
  const { rows } = await database.pool.query(
    "select message_id, last_error from sagabox.outbox where message_id like 'c-%' order by message_id",
  );
  expect(rows).toEqual([
    { message_id: "c-ada", last_error: "[erased]" },
    { message_id: "c-bob", last_error: "refused: c-bob" },
  ]);
});

test("C6: why a request failed is taken too, from its dead letter and where the answer waits", async () => {
  const database = await subjectsDatabase(40);
  const bus = subjectsBus(database);
  bus.on(Lookup, { consumer: "lookup" }, ({ data }) => {
    throw permanent(`no account for ${JSON.stringify(data)} in town`);
  });
  await bus.run();
  const asked = bus.request(Lookup, { customerId: "c-ada" }, { timeout: "20s" });
  await expect(asked).rejects.toMatchObject({ code: "REQUEST_FAILED" });
  expect((await bus.privacy.erase("c-ada", because)).scrubbed).toMatchObject({ deadLetters: 1, errors: 1 });
  const { rows } = await database.pool.query<{ id: string; body: string }>(
    "select request_id as id, body from sagabox.reply",
  );
  expect(rows.map(({ body }) => JSON.parse(body) as unknown)).toEqual([
    { requestId: rows[0]?.id, outcome: "failed", reason: "rejected", error: "[erased]" },
  ]);
  const [letter] = await bus.deadLetters.list();
  expect(letter?.errorMessage).toBe("[erased]");
});
