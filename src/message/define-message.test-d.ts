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
  WireOf,
  WireSafe,
  DataOf,
  InputOf,
  KeyedOf,
  ReplyInputOf,
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
  // @ts-expect-error neither output nor input is JSON
  event("x", { schema: z.object({ n: z.bigint().transform(Number) }) });
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

test("transforms: a publisher passes the input of the schema, a handler gets its output", () => {
  const schema = z.object({ at: z.coerce.date(), n: z.string().transform(Number), m: z.number().default(0) });
  const Measured = event("x", { schema, key: (wire) => wire.n });
  expectTypeOf<DataOf<typeof Measured>>().toEqualTypeOf<{ at: Date; n: number; m: number }>();
  expectTypeOf<InputOf<typeof Measured>["n"]>().toEqualTypeOf<string>();
  const Ask = command("x", { schema, reply: z.object({ n: z.string().transform(Number) }) });
  expectTypeOf<ReplyOf<typeof Ask>>().toEqualTypeOf<{ n: number }>();
  expectTypeOf<ReplyInputOf<typeof Ask>>().toEqualTypeOf<{ n: string }>();
});

test("key and personal see the form in which data are sent", () => {
  const dates = z.object({ at: z.coerce.date(), region: z.string().default("eu") });
  expectTypeOf<WireOf<typeof dates>>().toEqualTypeOf<{ at: string; region: string }>();
  const numbers = z.object({ n: z.string().transform(Number) });
  expectTypeOf<WireOf<typeof numbers>>().toEqualTypeOf<{ n: string }>();
  event("x", { schema: dates, key: (wire) => wire.at });
  const renamed = z.object({ a: z.string() }).transform(({ a }) => ({ b: a }));
  // @ts-expect-error a personal field that only the output has
  event("x", { schema: renamed, personal: { subject: (d) => d.a, fields: ["b"] } });
});

interface Payment {
  id: string;
  lines: { sku: string; parent?: Payment }[];
}

test("an interface is JSON if its properties are", () => {
  const schema = z.custom<Payment>();
  const Paid = event("x", { schema, key: (payment) => payment.id });
  const Pay = command("x", { schema, reply: schema });
  expectTypeOf<DataOf<typeof Paid>>().toEqualTypeOf<Payment>();
  expectTypeOf<ReplyOf<typeof Pay>>().toEqualTypeOf<Payment>();
});

test("errors name the value that JSON cannot carry", () => {
  const date = z.object({ lines: z.array(z.object({ at: z.date() })) });
  expectTypeOf<WireSafe<typeof date>>().toEqualTypeOf<{
    readonly schema: '"lines[].at" is a Date, which JSON cannot carry: use a schema that reads an ISO string, such as z.coerce.date(), or send toISOString()';
  }>();
  const bigint = z.object({ n: z.bigint() });
  expectTypeOf<WireSafe<typeof bigint>>().toEqualTypeOf<{
    readonly schema: '"n" is a bigint, which JSON cannot carry: send it as a string';
  }>();
});
