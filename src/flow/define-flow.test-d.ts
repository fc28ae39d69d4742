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

test("F9: events of any data make a flow, which can be checked and drawn", () => {
  const declared = flow("order").begins(Placed).on(Placed, { by: "stock", leadsTo: Reserved }).ends(Reserved);
  expectTypeOf(declared).toEqualTypeOf<Flow>();
  expectTypeOf(flowDiagram(declared)).toEqualTypeOf<string>();
});

test("F9: what cannot be a flow does not compile", () => {
  const begun = flow("order").begins(Placed);
  // @ts-expect-error a flow that begins with nothing
  flow("order").begins();
  // @ts-expect-error nothing happens before the beginning
  void flow("order").on;
  // @ts-expect-error a command is told to one service; nobody else can react to it
  flow("order").begins(Reserve);
  // @ts-expect-error a stream is no event
  begun.on(Placed, { by: "stock", leadsTo: Counted });
  // @ts-expect-error somebody has to react
  begun.on(Placed, { leadsTo: Reserved });
  // @ts-expect-error a reaction that leads to nothing
  begun.on(Placed, { by: "stock" });
  // @ts-expect-error a reaction that leads to an empty list
  begun.on(Placed, { by: "stock", leadsTo: [] });
  // @ts-expect-error a misspelt option
  begun.on(Placed, { by: "stock", leadsTo: Reserved, orFails: Reserved });
  // @ts-expect-error an undo of a name instead of an event
  begun.on(Placed, { by: "stock", leadsTo: Reserved, undoes: "order.placed" });
  // @ts-expect-error an effect that stays needs a reason
  begun.noUndo(Placed);
  // @ts-expect-error a declaration that was not closed
  checkFlow(begun);
  // @ts-expect-error nothing follows the end
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
