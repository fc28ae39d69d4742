import { expect, onTestFinished, test } from "vitest";
import { anOutgoing, outboxDatabase } from "../../../test/support/relays.ts";
import { silentObserver } from "../../telemetry/index.ts";
import { outboxSettings, type OverflowOptions } from "../options.ts";
import { Admission, OutboxFullError } from "./admission.ts";

async function setup(overflow: OverflowOptions) {
  const parts = await outboxDatabase();
  const { database, observer, write } = parts;
  const admission = new Admission({
    database,
    schema: "sagabox",
    observer,
    overflow: outboxSettings({ overflow }).overflow,
  });
  onTestFinished(() => admission.close());
  const fill = (count: number, topic: string) =>
    write(...Array.from({ length: count }, (_, n) => ({ message: { id: `${topic}-${n}`, topic } })));
  return { ...parts, admission, fill };
}

const to = (topic: string, delayMs?: number) =>
  anOutgoing({ message: { topic }, ...(delayMs === undefined ? {} : { delayMs }) });

test("A16: without a limit everything is admitted and nothing is counted", async () => {
  const unreachable = { session: () => Promise.reject(new Error("asked")) };
  const admission = new Admission({
    schema: "sagabox",
    overflow: null,
    observer: silentObserver,
    database: unreachable as never,
  });
  const outgoing = [to("any")];
  expect(admission.active).toBe(false);
  expect(await admission.admit(outgoing)).toBe(outgoing);
  await admission.admitBefore(["any"]);
  await admission.close();
});

test("A16: a full topic refuses with depth, limit and remedy; other topics and scheduled messages pass", async () => {
  const { admission, fill, observer } = await setup({ maxPending: 20 });
  await fill(20, "events.full");
  await fill(3, "events.roomy");
  const refusal = await admission.admit([to("events.full")]).catch((error: unknown) => error);
  expect(refusal).toBeInstanceOf(OutboxFullError);
  expect(refusal).toMatchObject({
    code: "OUTBOX_FULL",
    name: "OutboxFullError",
    topic: "events.full",
    depth: 20,
    limit: 20,
    message: expect.stringContaining("raise outbox.overflow.maxPending") as string,
  });
  expect(await admission.admit([to("events.roomy")])).toHaveLength(1);
  expect(await admission.admit([to("events.full", 1_000)])).toHaveLength(1);
  expect(observer.of("outbox.refused")).toEqual([{ topic: "events.full", policy: "refuse", depth: 20 }]);
});

test("A16: the policy drop drops only messages of the full topic and emits an event for each", async () => {
  const { admission, fill, observer } = await setup({ maxPending: 5, policy: "drop" });
  await fill(5, "events.full");
  const kept = await admission.admit([to("events.full"), to("events.roomy"), to("events.full")]);
  expect(kept.map((one) => one.message.topic)).toEqual(["events.roomy"]);
  expect(observer.of("outbox.refused")).toHaveLength(2);
  const counted = [
    anOutgoing({ message: { topic: "events.full", kind: "command", sagaId: "s-1" } }),
    anOutgoing({ message: { topic: "events.full", type: "sagabox.reply" } }),
  ];
  expect(await admission.admit(counted)).toEqual(counted);
});

test("A16: the policy wait waits before BEGIN until the topic is below its limit", async () => {
  const { admission, fill, rows, observer } = await setup({ maxPending: 10, policy: "wait" });
  await fill(10, "events.full");
  let waiting = true;
  const room = admission.admitBefore(["events.full"]).then(() => (waiting = false));
  await expect(admission.admit([to("events.full")])).rejects.toThrow("bus.admit() before BEGIN");
  expect(waiting).toBe(true);
  await rows("delete from sagabox.outbox where message_id <> 'events.full-0'");
  await room;
  expect(observer.of("outbox.refused")).toHaveLength(1);
});

test("A16: waiting ends with an error after the timeout, or at once when aborted", async () => {
  const { admission, fill } = await setup({ maxPending: 3, policy: "wait", timeout: 20 });
  await fill(3, "events.full");
  await expect(admission.admitBefore(["events.full"])).rejects.toMatchObject({
    code: "OUTBOX_FULL",
    depth: 3,
    limit: 3,
    message: expect.stringContaining("Timed out while waiting") as string,
  });
  const reason = new Error("changed my mind");
  await expect(admission.admitBefore(["events.full"], AbortSignal.abort(reason))).rejects.toBe(reason);
});

test("A16: the depth of a large backlog is estimated from a sample", async () => {
  const { admission, rows } = await setup({ maxPending: 20_000 });
  await rows(`insert into sagabox.outbox (lane, seq, topic, type, message_id, written_on, due_at)
    select n % 256, n, case when n % 4 = 0 then 'events.quarter' else 'events.rest' end, 'order.placed', 'm-' || n,
           current_date, now() from generate_series(1, 120000) as n`);
  const refusal = (await admission
    .admit([to("events.quarter")])
    .catch((error: unknown) => error)) as OutboxFullError;
  expect(refusal.depth).toBeGreaterThan(24_000);
  expect(refusal.depth).toBeLessThan(36_000);
});

test("messages are admitted if they cannot be counted", async () => {
  const { admission, fill, rows } = await setup({ maxPending: 1 });
  await fill(5, "events.full");
  await rows("alter table sagabox.outbox rename to elsewhere");
  expect(await admission.admit([to("events.full")])).toHaveLength(1);
});
