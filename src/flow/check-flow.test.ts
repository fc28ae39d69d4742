import { expect, test } from "vitest";
import { z } from "zod";
import * as shop from "../../test/support/flows.ts";
import { event } from "../message/index.ts";
import { checkFlow } from "./check-flow.ts";
import { flow } from "./define-flow.ts";

const of = (name: string) => event(name, { schema: z.object({ id: z.string() }) });
const [A, B, C, D, E] = [of("a"), of("b"), of("c"), of("d"), of("e")];
const [BFailed, CFailed, BUndone, CUndone] = [of("b.failed"), of("c.failed"), of("b.undone"), of("c.undone")];

const codes = (declared: Parameters<typeof checkFlow>[0]) =>
  checkFlow(declared).map(({ code, event: about }) => `${code} ${about}`);

test("F9: the choreography of the guide has no findings", () => {
  expect(checkFlow(shop.orderFlow)).toEqual([]);
});

test("F9: a missing compensation is found, with the scenario and a remedy", () => {
  const forgetful = flow("order")
    .begins(shop.OrderPlaced)
    .on(shop.OrderPlaced, { by: "stock", leadsTo: shop.StockReserved })
    .on(shop.StockReserved, {
      by: "payments",
      leadsTo: shop.PaymentCaptured,
      orFailsWith: shop.PaymentFailed,
    })
    .ends(shop.PaymentCaptured, shop.PaymentFailed);
  expect(checkFlow(forgetful)).toEqual([
    {
      code: "missing-compensation",
      level: "error",
      event: "stock.reserved",
      where: ["order.placed", "stock.reserved", "payment.failed"],
      what: 'When "payment.failed" happens, nothing undoes "stock.reserved".',
      remedy: "Let stock react to the failure with { undoes: … }, or say noUndo() with the reason.",
    },
  ]);
});

test("F9: every effect needs its own undo: a refund without a release is not enough", () => {
  const { reactions, ...rest } = shop.orderFlow;
  const without = {
    ...rest,
    reactions: reactions.filter(({ on, by }) => on !== "shipment.failed" || by !== "stock"),
  };
  expect(codes(without)).toEqual(["missing-compensation stock.reserved"]);
});

test("an effect with noUndo() needs no undo, and neither does an effect that follows from the failure", () => {
  const noted = flow("f")
    .begins(A)
    .on(A, { by: "s", leadsTo: B })
    .on(B, { by: "t", leadsTo: C, orFailsWith: CFailed })
    .on(CFailed, { by: "u", leadsTo: D })
    .noUndo(B, "a mail cannot be unsent")
    .ends(C, D);
  expect(codes(noted)).toEqual([]);
});

test("an alternative outcome needs no undo", () => {
  const either = flow("f")
    .begins(A)
    .on(A, { by: "s", leadsTo: B })
    .on(B, { by: "t", leadsTo: C, or: D })
    .ends(C, D);
  expect(codes(either)).toEqual([]);
});

test("a compensation that fails undoes nothing", () => {
  const shaky = flow("f")
    .begins(A)
    .on(A, { by: "s", leadsTo: B })
    .on(B, { by: "t", leadsTo: C, orFailsWith: CFailed })
    .on(CFailed, { by: "s", leadsTo: BUndone, orFailsWith: D, undoes: B });
  expect(codes(shaky.ends(C, BUndone, D))).toEqual(["missing-compensation b"]);
  const byHand = shaky.on(D, { by: "support", leadsTo: E, undoes: B }).ends(C, BUndone, E);
  expect(codes(byHand)).toEqual([]);
});

test("F9: a loop is found, and the check terminates", () => {
  const round = flow("f")
    .begins(A)
    .on(A, { by: "s", leadsTo: B })
    .on(B, { by: "t", leadsTo: C, or: D })
    .on(C, { by: "s", leadsTo: B })
    .ends(D);
  expect(checkFlow(round).map(({ code, where }) => [code, where])).toEqual([["loop", ["b", "c", "b"]]]);
});

test("events that only lead to each other are unreachable", () => {
  const island = flow("f")
    .begins(A)
    .on(A, { by: "s", leadsTo: B })
    .on(C, { by: "s", leadsTo: D })
    .on(D, { by: "t", leadsTo: C })
    .ends(B);
  expect(codes(island)).toEqual(["unreachable c", "unreachable d", "loop c"]);
});

test("an event that leads nowhere must be a declared end, and an end must lead nowhere", () => {
  const body = flow("f")
    .begins(A)
    .on(A, { by: "s", leadsTo: [B, C] });
  expect(codes(body.ends(B))).toEqual(["dead-end c"]);
  expect(codes(body.ends(A, B, C))).toEqual(["end-goes-on a"]);
});

test("an undo of an event that has not happened is found", () => {
  const early = flow("f")
    .begins(A)
    .on(A, { by: "s", leadsTo: B, orFailsWith: BFailed })
    .on(BFailed, { by: "t", leadsTo: CUndone, undoes: C })
    .on(B, { by: "t", leadsTo: C })
    .ends(C, CUndone);
  expect(codes(early)).toEqual(["undo-of-nothing c"]);
});

test("an undo of a concurrent event is a race, and two undos of one event are reported", () => {
  const beside = flow("f")
    .begins(A)
    .on(A, { by: "s", leadsTo: B })
    .on(A, { by: "t", leadsTo: C, orFailsWith: CFailed })
    .on(CFailed, { by: "s", leadsTo: BUndone, undoes: B });
  expect(checkFlow(beside.ends(B, C, BUndone)).map(({ code, level }) => [code, level])).toEqual([
    ["undo-in-a-race", "warning"],
  ]);
  const eager = beside.on(CFailed, { by: "u", leadsTo: D, undoes: B }).ends(B, C, BUndone, D);
  expect(codes(eager)).toContain("undone-twice b");
});

test("an event that two reactions publish in one scenario is a duplicate", () => {
  const doubled = flow("f").begins(A).on(A, { by: "s", leadsTo: B }).on(A, { by: "t", leadsTo: B }).ends(B);
  expect(codes(doubled)).toEqual(["made-twice b"]);
});

test("a flow with too many scenarios is checked up to the limit and reported", () => {
  const many = Array.from({ length: 16 }, (_, n) => [of(`x${n}`), of(`y${n}`)] as const);
  const body = many.reduce(
    (grown, [x, y], n) => grown.on(A, { by: `s${n}`, leadsTo: x, or: y }),
    flow("f").begins(A),
  );
  expect(codes(body.ends(...(many.flat() as [typeof A])))).toEqual(["not-all-checked a"]);
});
