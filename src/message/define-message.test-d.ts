import { type } from "arktype";
import * as v from "valibot";
import { expectTypeOf, test } from "vitest";
import { z } from "zod";
import { command, event, stream } from "./index.ts";
import type {
  AnyCommand,
  AnyContract,
  AnyEvent,
  AnyStream,
  DataOf,
  InputOf,
  KeyedOf,
  ReplyOf,
} from "./index.ts";

const OrderPlaced = event("orders.order.placed", {
  version: 2,
  schema: z.object({
    orderId: z.string(),
    contact: z.object({ email: z.string() }),
    note: z.object({ text: z.string() }).optional(),
    total: z.number().default(0),
  }),
  key: (data) => data.orderId,
  personal: { subject: (data) => data.orderId, fields: ["contact.email", "note.text"] },
  upcast: { 1: (v1) => ({ ...v1, total: v1.amount }) },
});

test("data has the output type of the schema, input its input type", () => {
  expectTypeOf<DataOf<typeof OrderPlaced>["total"]>().toEqualTypeOf<number>();
  expectTypeOf<InputOf<typeof OrderPlaced>["total"]>().toEqualTypeOf<number | undefined>();
  expectTypeOf<ReplyOf<typeof OrderPlaced>>().toEqualTypeOf<never>();
});

test("the type says whether a contract has a key", () => {
  const Approved = event("crm.approved", { schema: z.object({ ref: z.string() }) });
  expectTypeOf<KeyedOf<typeof OrderPlaced>>().toEqualTypeOf<true>();
  expectTypeOf<KeyedOf<typeof Approved>>().toEqualTypeOf<false>();
  const Reading = stream("sensor.reading", { schema: z.object({ id: z.string() }), key: (data) => data.id });
  expectTypeOf<KeyedOf<typeof Reading>>().toEqualTypeOf<true>();
});

test("a command's reply is typed, and void without one", () => {
  const Reserve = command("stock.reserve", {
    schema: z.object({ sku: z.string() }),
    reply: z.object({ id: z.string() }),
  });
  const Notify = command("mail.send", { schema: z.object({ to: z.string() }), target: "mail" });
  expectTypeOf<ReplyOf<typeof Reserve>>().toEqualTypeOf<{ id: string }>();
  expectTypeOf<ReplyOf<typeof Notify>>().toEqualTypeOf<void>();
  expectTypeOf(Reserve).toExtend<AnyCommand>();
  expectTypeOf(Notify).toExtend<AnyContract>();
  expectTypeOf(Notify).not.toExtend<AnyEvent>();
});

test("contracts of all schema libraries have the same type", () => {
  const fromValibot = event("x", { schema: v.object({ a: v.string() }), key: (data) => data.a });
  const fromArktype = stream("x", { schema: type({ a: "string" }), key: (data) => data.a });
  expectTypeOf<DataOf<typeof fromValibot>>().toEqualTypeOf<{ a: string }>();
  expectTypeOf<DataOf<typeof fromArktype>>().toEqualTypeOf<{ a: string }>();
  expectTypeOf(fromValibot).toExtend<AnyEvent>();
  expectTypeOf(fromArktype).toExtend<AnyStream>();
  expectTypeOf(OrderPlaced).toExtend<AnyContract>();
});

test("mistakes do not compile", () => {
  // @ts-expect-error a personal field that is not in the schema
  event("x", { schema: z.object({ a: z.string() }), personal: { subject: (d) => d.a, fields: ["b"] } });
  // @ts-expect-error a Date does not survive JSON
  event("x", { schema: z.object({ at: z.date() }) });
  // @ts-expect-error output is not valid input again
  event("x", { schema: z.object({ n: z.string().transform(Number) }) });
  // @ts-expect-error a reply is sent too, so it must be JSON
  command("x", { schema: z.object({}), reply: z.object({ at: z.date() }) });
  // @ts-expect-error a key is a string
  event("x", { schema: z.object({ n: z.number() }), key: (d) => d.n });
  // @ts-expect-error an event has no reply
  event("x", { schema: z.object({}), reply: z.object({}) });
  // @ts-expect-error an event has no target
  event("x", { schema: z.object({}), target: "stock" });
  // @ts-expect-error there are ten priorities
  event("x", { schema: z.object({}), priority: 10 });
  // @ts-expect-error a time to live needs a unit
  event("x", { schema: z.object({}), ttl: "5" });
});
