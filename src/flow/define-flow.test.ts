import { expect, test } from "vitest";
import { z } from "zod";
import { orderFlow, PaymentCaptured, StockReserved } from "../../test/support/flows.ts";
import { command, event } from "../message/index.ts";
import { flow, type FlowBody } from "./define-flow.ts";

const schema = z.object({ id: z.string() });
const of = (name: string) => event(name, { schema });
const [A, B, C, D] = [of("a"), of("b"), of("c"), of("d")];
const begun = (): FlowBody => flow("f").begins(A);

test("F9: a flow is frozen data", () => {
  const { name, begins, reactions, ends, events, noUndo } = orderFlow;
  expect([name, begins, ends]).toEqual([
    "order",
    ["order.placed"],
    ["shipment.scheduled", "stock.released", "payment.refunded"],
  ]);
  expect(reactions[1]).toEqual({
    on: "stock.reserved",
    by: "payments",
    outcomes: [
      { events: ["payment.captured"], failure: false },
      { events: ["payment.failed"], failure: true },
    ],
    undoes: [],
  });
  expect(events.map((contract) => contract.name)).toHaveLength(8);
  for (const part of [orderFlow, begins, reactions, reactions[0], reactions[0]?.outcomes, events, noUndo]) {
    expect(Object.isFrozen(part)).toBe(true);
  }
});

test("several events may be published together, several may be alternatives", () => {
  const { reactions } = begun()
    .on(A, { by: "s", leadsTo: [B, C], or: D })
    .ends(B, C, D);
  expect(reactions[0]?.outcomes).toEqual([
    { events: ["b", "c"], failure: false },
    { events: ["d"], failure: false },
  ]);
});

test("a declaration that is continued twice makes two independent flows", () => {
  const body = begun().on(A, { by: "s", leadsTo: B });
  expect(body.on(B, { by: "t", leadsTo: C }).ends(C).reactions).toHaveLength(2);
  expect(body.ends(B).reactions).toHaveLength(1);
});

const Do = command("do.it", { schema }) as unknown as typeof A;
const Newer = event("b", { schema, version: 2 });

test.each<[string, () => unknown]>([
  [
    'nothing leads to "c" and the flow does not begin with it',
    () => begun().on(C, { by: "s", leadsTo: B }).ends(B),
  ],
  ['nothing leads to "c"', () => begun().on(A, { by: "s", leadsTo: B }).ends(C)],
  ['nothing leads to "c"', () => begun().on(A, { by: "s", leadsTo: B, undoes: C }).ends(B)],
  ['nothing leads to "c"', () => begun().on(A, { by: "s", leadsTo: B }).noUndo(C, "x").ends(B)],
  [
    '"s" reacts to "a" with "b" twice',
    () => begun().on(A, { by: "s", leadsTo: B }).on(A, { by: "s", leadsTo: B }).ends(B),
  ],
  ['"b" appears twice in the outcomes', () => begun().on(A, { by: "s", leadsTo: B, orFailsWith: B }).ends(B)],
  [
    '"b" appears twice in leadsTo',
    () =>
      begun()
        .on(A, { by: "s", leadsTo: [B, B] })
        .ends(B),
  ],
  ["leads to itself", () => begun().on(A, { by: "s", leadsTo: A }).ends(A)],
  ["versions 1 and 2", () => begun().on(A, { by: "s", leadsTo: B }).ends(Newer)],
  ["takes contracts made by event()", () => begun().on(A, { by: "s", leadsTo: Do }).ends(Do)],
  ["needs `by`", () => begun().on(A, { by: "", leadsTo: B }).ends(B)],
  ["needs a reason", () => begun().on(A, { by: "s", leadsTo: B }).noUndo(B, " ").ends(B)],
  [
    'no option "leedsTo"; did you mean "leadsTo"?',
    () =>
      begun()
        .on(A, { by: "s", leedsTo: B } as unknown as { by: string; leadsTo: typeof B })
        .ends(B),
  ],
  ["the name must match", () => flow("no spaces").begins(A).ends(A)],
])("FLOW_INVALID: %s", (message, declare) => {
  expect(declare).toThrow(expect.objectContaining({ code: "FLOW_INVALID" }));
  expect(declare).toThrow(message);
});

test("an unknown event with a similar name gets a suggestion", () => {
  const Captured = event("payment.capture", { schema });
  const declare = () =>
    flow("f").begins(StockReserved).on(StockReserved, { by: "s", leadsTo: PaymentCaptured }).ends(Captured);
  expect(declare).toThrow('did you mean "payment.captured"?');
});
