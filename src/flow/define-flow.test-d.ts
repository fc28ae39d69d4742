import { expectTypeOf, test } from "vitest";
import { z } from "zod";
import { command, event, stream } from "../message/index.ts";
import { checkFlow } from "./check-flow.ts";
import { flow } from "./define-flow.ts";
import { flowDiagram } from "./diagram.ts";
import type { Flow } from "./flow.ts";

const schema = z.object({ orderId: z.string() });
const Placed = event("order.placed", { schema, key: ({ orderId }) => orderId });
const Reserved = event("stock.reserved", { schema: z.object({ shelf: z.number() }) });
const Reserve = command("stock.reserve", { schema });
const Counted = stream("stock.counted", { schema });

test("F9: a flow of events can be checked and drawn", () => {
  const declared = flow("order").begins(Placed).on(Placed, { by: "stock", leadsTo: Reserved }).ends(Reserved);
  expectTypeOf(declared).toEqualTypeOf<Flow>();
  expectTypeOf(flowDiagram(declared)).toEqualTypeOf<string>();
});

test("F9: invalid declarations do not compile", () => {
  const begun = flow("order").begins(Placed);
  // @ts-expect-error begins() without an event
  flow("order").begins();
  // @ts-expect-error on() before begins()
  void flow("order").on;
  // @ts-expect-error a command has one receiver, so other services cannot react to it
  flow("order").begins(Reserve);
  // @ts-expect-error a stream is not an event
  begun.on(Placed, { by: "stock", leadsTo: Counted });
  // @ts-expect-error `by` is missing
  begun.on(Placed, { leadsTo: Reserved });
  // @ts-expect-error `leadsTo` is missing
  begun.on(Placed, { by: "stock" });
  // @ts-expect-error `leadsTo` is empty
  begun.on(Placed, { by: "stock", leadsTo: [] });
  // @ts-expect-error a misspelt option
  begun.on(Placed, { by: "stock", leadsTo: Reserved, orFails: Reserved });
  // @ts-expect-error an undo of a name instead of an event
  begun.on(Placed, { by: "stock", leadsTo: Reserved, undoes: "order.placed" });
  // @ts-expect-error an effect that stays needs a reason
  begun.noUndo(Placed);
  // @ts-expect-error a declaration without ends()
  checkFlow(begun);
  // @ts-expect-error on() after ends()
  void begun.ends(Placed).on;
});

test("F9: a flow cannot be changed", () => {
  const declared = begunAndEnded();
  // @ts-expect-error the events are fixed
  declared.ends.push("order.placed");
});

function begunAndEnded(): Flow {
  return flow("order").begins(Placed).ends(Placed);
}
