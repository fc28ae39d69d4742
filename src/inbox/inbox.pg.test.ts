import { expect, test } from "vitest";
import { consumers } from "../../test/support/consumers.ts";
import type { HandlerContext } from "./handler.ts";
import { Inbox } from "./inbox.ts";
import { forgetInbox } from "./janitor.ts";

const message = { id: "a", consumer: "billing", topic: "foreign", type: "order.placed", data: { n: 1 } };

async function setup() {
  const harness = await consumers();
  const inbox = new Inbox(harness.engine, { idOf: ({ headers }) => headers?.["x-id"], deadline: "2s" });
  const bill = async (given: { id: string }, { tx, idempotencyKey }: HandlerContext) => {
    await tx.query("insert into effect (consumer, id, note) values ('billing', $1, $2)", [
      given.id,
      idempotencyKey,
    ]);
    return { invoice: 7 };
  };
  return { harness, inbox, bill };
}

test("D2, D7: the first time a message is processed, then it is a duplicate with the first result", async () => {
  const { harness, inbox, bill } = await setup();
  expect(await inbox.process(message, bill)).toEqual({ kind: "processed", result: { invoice: 7 } });
  expect(await inbox.process(message, bill)).toEqual({ kind: "duplicate", result: { invoice: 7 } });
  expect(await inbox.process({ ...message, consumer: "mail" }, bill)).toMatchObject({ kind: "processed" });
  expect(await harness.effects()).toHaveLength(2);
});

test("a handler without a result has none, nor has its duplicate", async () => {
  const { inbox } = await setup();
  expect(await inbox.process(message, () => undefined)).toEqual({ kind: "processed", result: undefined });
  expect(await inbox.process(message, () => undefined)).toEqual({ kind: "duplicate" });
});

test("D3: the handler's error is thrown after a rollback", async () => {
  const { harness, inbox, bill } = await setup();
  const failing = inbox.process(message, async (given, context) => {
    await bill(given, context);
    throw new Error("printer on fire");
  });
  await expect(failing).rejects.toThrow("printer on fire");
  expect(await harness.effects()).toEqual([]);
  expect(await inbox.process(message, bill)).toMatchObject({ kind: "processed" });
});

test("D6: of many instances that get one message at the same time, one handles it and the others wait for its result", async () => {
  const { harness, inbox, bill } = await setup();
  const outcomes = await Promise.all(Array.from({ length: 8 }, () => inbox.process(message, bill)));
  expect(outcomes.map((outcome) => outcome.kind).sort()).toEqual([
    ...Array<string>(7).fill("duplicate"),
    "processed",
  ]);
  expect(
    outcomes.every((outcome) => "result" in outcome && JSON.stringify(outcome.result) === '{"invoice":7}'),
  ).toBe(true);
  expect(await harness.effects()).toHaveLength(1);
});

test("D6: a worker that waits takes over when the first one fails", async () => {
  const { inbox, bill } = await setup();
  let started: (() => void) | undefined;
  const begun = new Promise<void>((resolve) => (started = resolve));
  let fail: ((error: Error) => void) | undefined;
  const failing = inbox.process(message, () => {
    started?.();
    return new Promise<void>((_, reject) => (fail = reject));
  });
  await begun;
  const second = inbox.process(message, bill);
  fail?.(new Error("no"));
  await expect(failing).rejects.toThrow("no");
  expect(await second).toMatchObject({ kind: "processed" });
});

test("D7: the id of a foreign message comes from `idOf`; without one it is a dead letter", async () => {
  const { harness, inbox, bill } = await setup();
  const { id: _, ...foreign } = message;
  expect(await inbox.process({ ...foreign, headers: { "x-id": "f-1" } }, bill)).toMatchObject({
    kind: "processed",
  });
  expect(await inbox.process({ ...foreign, id: "f-1" }, bill)).toMatchObject({ kind: "duplicate" });
  const dead = async (id?: string) =>
    inbox.process({ ...foreign, ...(id === undefined ? {} : { id }) }, bill);
  expect(await dead()).toEqual({ kind: "dead_letter", code: "MESSAGE_ID_MISSING" });
  expect(await dead("  ")).toEqual({ kind: "dead_letter", code: "MESSAGE_ID_MISSING" });
  expect(await dead("x".repeat(256))).toEqual({ kind: "dead_letter", code: "MESSAGE_ID_INVALID" });
  expect(await harness.effects()).toHaveLength(1);
  const letters = await harness.rows("select consumer, reason, data from sagabox.dead_letter");
  expect(letters).toEqual(
    Array(3).fill({ consumer: message.consumer, reason: "rejected", data: JSON.stringify(message.data) }),
  );
});

test("a result that JSON cannot represent fails the handler, and everything is rolled back", async () => {
  const { harness, inbox } = await setup();
  const failing = inbox.process(message, () => ({ at: 2n as unknown as number }));
  await expect(failing).rejects.toMatchObject({ code: "PAYLOAD_NOT_JSON" });
  expect(await harness.rows("select 1 from sagabox.consumer_inbox")).toEqual([]);
});

test("X-03: after a timeout the connection is destroyed, not returned, and the next thousand queries are fine", async () => {
  const { harness } = await setup();
  const hasty = new Inbox(harness.engine, { deadline: 50 });
  let late: Promise<unknown> | undefined;
  const stuck = hasty.process(message, (_, { tx }) => {
    late = tx.query("select pg_sleep(0.4)").catch((error: unknown) => error);
    return late.then(() => undefined);
  });
  await expect(stuck).rejects.toMatchObject({ code: "HANDLER_TIMEOUT" });
  const answers = await Promise.all(
    Array.from({ length: 1_000 }, (_, n) => harness.pool.query<{ n: number }>("select $1::int as n", [n])),
  );
  expect(answers.map((answer) => answer.rows[0]?.n)).toEqual(Array.from({ length: 1_000 }, (_, n) => n));
  expect(await late).toBeInstanceOf(Error);
});

test("a handler that continues after its deadline cannot write", async () => {
  const { harness } = await setup();
  const hasty = new Inbox(harness.engine, { deadline: 50 });
  let after: Promise<unknown> | undefined;
  const slow = hasty.process(message, async (_, { tx, signal }) => {
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    after = tx.query("insert into effect (id) values ('too late')").catch((error: unknown) => error);
  });
  await expect(slow).rejects.toMatchObject({ code: "HANDLER_TIMEOUT" });
  await expect.poll(() => after).toBeDefined();
  expect(await after).toMatchObject({ code: "TRANSACTION_CLOSED" });
  expect(await harness.effects()).toEqual([]);
});

test("D9: stats count per consumer, in all, in the last hour and day", async () => {
  const { harness, inbox } = await setup();
  for (const id of ["a", "b", "c"]) await inbox.process({ ...message, id }, () => undefined);
  await inbox.process({ ...message, consumer: "mail" }, () => undefined);
  await harness.rows(
    "update sagabox.consumer_inbox set consumed_at = clock_timestamp() - interval '2 hours' where event_id = 'b'",
  );
  await harness.rows(
    "update sagabox.consumer_inbox set consumed_at = clock_timestamp() - interval '2 days' where event_id = 'c'",
  );
  const oldest = expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/) as string;
  expect(await inbox.stats()).toEqual([
    { consumer: "billing", total: 3, oldest, lastHour: 1, lastDay: 2 },
    { consumer: "mail", total: 1, oldest, lastHour: 1, lastDay: 1 },
  ]);
  expect(await inbox.stats("mail")).toHaveLength(1);
});

test("D5: clean-up removes old rows in batches, can be stopped, and keeps the rest", async () => {
  const { harness } = await setup();
  await harness.rows(
    `insert into sagabox.consumer_inbox (consumer_name, event_id, source_topic, event_type, consumed_at)
     select 'billing', n::text, 't', 'e', clock_timestamp() - n * interval '1 day' from generate_series(1, 100) as n`,
  );
  const olderThanMs = 30.5 * 86_400_000;
  expect(await forgetInbox(harness.engine, { olderThanMs, batchSize: 10, signal: AbortSignal.abort() })).toBe(
    0,
  );
  expect(await forgetInbox(harness.engine, { olderThanMs, batchSize: 10 })).toBe(70);
  expect(await harness.rows("select count(*)::int as kept from sagabox.consumer_inbox")).toEqual([
    { kept: 30 },
  ]);
  expect(harness.observer.of("history.cleaned")).toEqual([{ table: "consumer_inbox", count: 70 }]);
});
