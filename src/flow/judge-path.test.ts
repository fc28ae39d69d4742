import { expect, test } from "vitest";
import { z } from "zod";
import { orderFlow, recordedPath, type Seen } from "../../test/support/flows.ts";
import { event } from "../message/index.ts";
import { flow } from "./define-flow.ts";
import { judgePath } from "./judge-path.ts";

const placed = { id: "1", type: "order.placed", source: "orders", at: 0 };
const reserved = { id: "2", type: "stock.reserved", source: "stock", after: "1", at: 10 };
const captured = { id: "3", type: "payment.captured", source: "payments", after: "2", at: 30 };
const scheduled = { id: "4", type: "shipment.scheduled", source: "shipping", after: "3", at: 60 };
const declined = { id: "5", type: "payment.failed", source: "payments", after: "2", at: 30 };
const released = { id: "6", type: "stock.released", source: "stock", after: "5", at: 45 };
const unshipped = { id: "7", type: "shipment.failed", source: "shipping", after: "3", at: 60 };
const refunded = { id: "8", type: "payment.refunded", source: "payments", after: "7", at: 80 };

const judge = (...seen: readonly Seen[]) => judgePath(orderFlow, recordedPath(...seen));

test("F9: a finished path is completed, and every step has its cause and durations", () => {
  const { status, steps, waitsFor, notUndone, surprises } = judge(placed, reserved, captured, scheduled);
  expect([status, waitsFor, notUndone, surprises]).toEqual(["completed", [], [], []]);
  const lines = steps.map(({ type, source, role, parent, sinceParentMs, sinceBeginMs }) =>
    [type, source, role, parent, sinceParentMs, sinceBeginMs].join(" "),
  );
  expect(lines).toEqual([
    "order.placed orders begin   0",
    "stock.reserved stock effect 1 10 10",
    "payment.captured payments effect 2 20 30",
    "shipment.scheduled shipping effect 3 30 60",
  ]);
});

test("F9: a running path shows the pending service, its events and since when", () => {
  const { status, waitsFor } = judge(placed, reserved);
  expect(status).toBe("running");
  expect(waitsFor).toEqual([
    {
      by: "payments",
      oneOf: [["payment.captured"], ["payment.failed"]],
      after: { messageId: "2", type: "stock.reserved" },
      since: "2026-01-01T12:00:00.010Z",
    },
  ]);
});

test("F9: from the first failure a path is compensating, and compensated when every effect was undone", () => {
  expect(judge(placed, reserved, declined)).toMatchObject({
    status: "compensating",
    waitsFor: [{ by: "stock", oneOf: [["stock.released"]] }],
    notUndone: ["2"],
  });
  expect(judge(placed, reserved, declined, released)).toMatchObject({ status: "compensated", notUndone: [] });
});

test("F9: a failure that two services react to is compensated after both reactions", () => {
  const alsoReleased = { ...released, after: "7", at: 90 };
  const seen = [placed, reserved, captured, unshipped, refunded] as const;
  expect(judge(...seen)).toMatchObject({
    status: "compensating",
    waitsFor: [{ by: "stock" }],
    notUndone: ["2"],
  });
  const { status, steps } = judge(...seen, alsoReleased);
  expect(status).toBe("compensated");
  expect(steps.map(({ role }) => role)).toEqual(["begin", "effect", "effect", "failure", "undo", "undo"]);
});

test("an effect without a declared undo leaves the path failed", () => {
  const { reactions, ...rest } = orderFlow;
  const forgetful = { ...rest, reactions: reactions.filter(({ on }) => on !== "payment.failed") };
  expect(judgePath(forgetful, recordedPath(placed, reserved, declined))).toMatchObject({
    status: "failed",
    waitsFor: [],
    notUndone: ["2"],
  });
  const kept = { ...forgetful, noUndo: { "stock.reserved": "it expires" } };
  expect(judgePath(kept, recordedPath(placed, reserved, declined)).status).toBe("compensated");
});

test("neither arrival order nor clock differences change the judgement", () => {
  const fast = { ...reserved, at: -500 };
  const { status, steps, surprises } = judge(scheduled, fast, captured, placed);
  expect([status, surprises]).toEqual(["completed", []]);
  expect(steps.map(({ messageId }) => messageId)).toEqual(["1", "2", "3", "4"]);
  expect(steps[1]).toMatchObject({ sinceParentMs: 0, sinceBeginMs: 0 });
});

test("an event without a known cause is matched to a pending reaction, by key if there are several", () => {
  const [other, otherReserved] = [
    { ...placed, id: "1b", key: "A-2", at: 1 },
    { ...reserved, id: "2b", after: "1b", key: "A-2", at: 11 },
  ];
  const webhook = { ...captured, after: null, key: "A-2" };
  const { steps, waitsFor } = judge(placed, other, reserved, otherReserved, webhook);
  expect(steps.find(({ messageId }) => messageId === "3")?.parent).toBe("2b");
  expect(waitsFor.map(({ after }) => after.messageId).toSorted()).toEqual(["2", "3"]);
  const behindACommand = { ...captured, after: "a message that is no event of the flow", key: null };
  expect(judge(placed, reserved, behindACommand).steps[2]?.parent).toBe("2");
});

test("a correlation id may hold several paths; a failure on one needs no undo on the other", () => {
  const second = [placed, reserved, captured, scheduled].map((seen: Seen) => ({
    ...seen,
    id: `${seen.id}b`,
    after: typeof seen.after === "string" ? `${seen.after}b` : null,
    key: "A-2",
  }));
  const { status, notUndone } = judge(placed, reserved, declined, released, ...second);
  expect([status, notUndone]).toEqual(["compensated", []]);
});

test("events that contradict the declaration are reported", () => {
  const { surprises } = judge(
    { ...captured, source: "billing" },
    { ...scheduled, id: "9", after: "8" },
    placed,
    reserved,
    { ...declined, at: 70 },
  );
  expect(surprises.map(({ type, what }) => `${type}: ${what}`)).toEqual([
    'payment.captured: Published by "billing"; the flow says "payments".',
    'payment.failed: A second outcome of "payments" reacting to "stock.reserved".',
  ]);
  expect(judge(captured).surprises).toEqual([
    expect.objectContaining({
      type: "payment.captured",
      what: expect.stringContaining("start of the path may be missing"),
    }),
  ]);
});

test("a path waits for the missing event of an outcome with several events", () => {
  const of = (name: string) => event(name, { schema: z.object({}) });
  const [A, B, C] = [of("a"), of("b"), of("c")];
  const pair = flow("pair")
    .begins(A)
    .on(A, { by: "s", leadsTo: [B, C] })
    .ends(B, C);
  const [a, b] = [
    { id: "1", type: "a", source: "x", at: 0 },
    { id: "2", type: "b", source: "s", after: "1", at: 1 },
  ];
  expect(judgePath(pair, recordedPath(a, b)).waitsFor).toMatchObject([{ by: "s", oneOf: [["c"]] }]);
  expect(judgePath(pair, recordedPath(a)).waitsFor).toMatchObject([{ oneOf: [["b", "c"]] }]);
});

test("a causation cycle does not break the judgement", () => {
  const of = (name: string) => event(name, { schema: z.object({}) });
  const [A, B] = [of("a"), of("b")];
  const round = flow("round").begins(A).on(A, { by: "s", leadsTo: B }).on(B, { by: "s", leadsTo: A }).ends(A);
  const events = recordedPath(
    { id: "1", type: "a", source: "s", after: "2", at: 0 },
    { id: "2", type: "b", source: "s", after: "1", at: 1 },
  );
  expect(judgePath(round, events).steps).toHaveLength(2);
});
