import { expect, test } from "vitest";
import { z } from "zod";
import { event } from "../message/index.ts";
import { inboxRetentionMs } from "./janitor.ts";
import { HandlerRegistry } from "./registry.ts";

const Placed = event("order.placed", { schema: z.object({}) });
const Paid = event("order.paid", { schema: z.object({}), topic: "money" });
const nothing = (): void => undefined;

test("a consumer has its handlers, their topics and the default options", () => {
  const registry = new HandlerRegistry(() => undefined);
  registry.on(Placed, { consumer: "billing" }, nothing);
  registry.onBatch(Paid, { consumer: "billing" }, nothing);
  const [billing] = registry.consumers();
  expect(billing).toMatchObject({
    name: "billing",
    topics: ["events.order.placed", "money"],
    settings: {
      concurrency: 10,
      prefetch: null,
      from: null,
      storePayload: false,
      maxCrashes: 3,
      unknown: null,
    },
  });
  expect(billing?.handlers.get("order.placed")?.settings).toMatchObject({
    deadlineMs: 30_000,
    batch: null,
    retry: { maxAttempts: 6, firstDelayMs: 1_000, maxDelayMs: 60_000 },
  });
  expect(billing?.handlers.get("order.paid")?.settings.batch).toEqual({ size: 50, waitMs: 0 });
});

test("B7: a consumer may begin at a time, two handlers may give equal times, and other values are rejected", () => {
  const registry = new HandlerRegistry();
  const time = "2026-01-02T03:04:05.678Z";
  registry.on(Placed, { consumer: "billing", from: { time: new Date(time) } }, nothing);
  registry.on(Paid, { consumer: "billing", from: { time: new Date(time) } }, nothing);
  expect(registry.consumers()[0]?.settings.from).toEqual({ time: new Date(time) });
  const refused =
    (from: unknown): unknown =>
    () =>
      new HandlerRegistry().on(Placed, { consumer: "billing", from: from as "now" }, nothing);
  for (const from of [
    { time },
    { time: new Date("?") },
    { time: new Date(Date.now() + 60_000) },
    null,
    "then",
  ])
    expect(refused(from)).toThrow(expect.objectContaining({ code: "OPTIONS_INVALID" }));
  expect(refused({ tiem: new Date(time) })).toThrow(expect.objectContaining({ code: "OPTIONS_UNKNOWN_KEY" }));
  const other = { time: new Date("2026-01-02T03:04:05.679Z") };
  const Third = event("order.third", { schema: z.object({}) });
  expect(() => registry.on(Third, { consumer: "billing", from: other }, nothing)).toThrow('"from"');
});

test("a second handler for one consumer and contract is rejected", () => {
  const registry = new HandlerRegistry();
  registry.on(Placed, { consumer: "billing" }, nothing);
  expect(() => registry.on(Placed, { consumer: "billing" }, nothing)).toThrow(
    expect.objectContaining({ code: "HANDLER_DUPLICATE" }),
  );
  registry.on(Placed, { consumer: "mail" }, nothing);
  expect(registry.consumers()).toHaveLength(2);
});

test("handlers of one consumer may give equal options but not different ones", () => {
  const registry = new HandlerRegistry();
  registry.on(Placed, { consumer: "billing", concurrency: 4 }, nothing);
  expect(() => registry.on(Paid, { consumer: "billing", concurrency: 5 }, nothing)).toThrow('"concurrency"');
  registry.on(Paid, { consumer: "billing", concurrency: 4, prefetch: 9 }, nothing);
  expect(registry.consumers()[0]?.settings).toMatchObject({ concurrency: 4, prefetch: 9 });
});

test.each([
  [{ consumer: "billing", concurency: 3 }, 'Did you mean "concurrency"?'],
  [{ consumer: "" }, "consumer must have 1 to 255 characters"],
  [{ consumer: "billing", deadline: "soon" }, "must be a duration"],
  [{ consumer: "billing", batch: { sise: 3 } }, 'Did you mean "size"?'],
  [{ consumer: "billing", unknown: "drop" }, '"ignore", "dead-letter"'],
  [{ consumer: "billing", statement: (): never => null as never }, "either a handler function or"],
])("options %j are refused", (options, complaint) => {
  expect(() => new HandlerRegistry().on(Placed, options as never, nothing)).toThrow(complaint);
});

test("a missing consumer name is reported", () => {
  const registry = new HandlerRegistry(() => undefined);
  expect(() => registry.on(Placed, {} as { consumer: string }, nothing)).toThrowError(
    "on().consumer must be a string, but is undefined.",
  );
});

test("a registration needs a handler or a statement", () => {
  expect(() => new HandlerRegistry().on(Placed, { consumer: "billing" } as never)).toThrow("needs either");
  expect(() => new HandlerRegistry().onBatch(Placed, { consumer: "billing" }, undefined as never)).toThrow(
    "onBatch",
  );
});

test("D5: a dedupe row outlives every copy that could still be replayed, and never less than 7 days", () => {
  const days = (given: number): number => given * 86_400_000;
  expect(inboxRetentionMs()).toBe(days(32));
  expect(inboxRetentionMs({ retention: "7d", archive: "3d" })).toBe(days(16));
  expect(inboxRetentionMs({ retention: "7d", deadLetters: "1d", archive: "60d" })).toBe(days(62));
  expect(() => inboxRetentionMs({ retention: "6d" })).toThrow("inbox.retention");
  expect(() => inboxRetentionMs({ retentoin: "6d" } as never)).toThrow('Did you mean "retention"?');
});

test("a handler registered after the start is rejected", () => {
  const registry = new HandlerRegistry();
  registry.on(Placed, { consumer: "billing" }, nothing);
  registry.close();
  expect(() => registry.on(Paid, { consumer: "billing" }, nothing)).toThrow(
    expect.objectContaining({ code: "HANDLER_TOO_LATE" }),
  );
  expect(registry.consumers()[0]?.topics).toEqual(["events.order.placed"]);
});
