import { expectTypeOf, test } from "vitest";
import { z } from "zod";
import {
  command,
  event,
  type DataOf,
  type Erased,
  type InputOf,
  type Personal,
  type ReplyOf,
  type Encrypted,
} from "./index.ts";

const Registered = event("people.registered", {
  schema: z.object({
    id: z.string(),
    email: z.string(),
    address: z.object({ street: z.string() }).optional(),
    guests: z.array(z.object({ name: z.string(), seat: z.number() })),
  }),
  personal: { subject: ({ id }) => id, fields: ["email", "address", "guests.*.name"] },
});

type Data = DataOf<typeof Registered>;

test("C6: a handler must check personal fields; other fields keep their type", () => {
  expectTypeOf<Data["email"]>().toEqualTypeOf<Personal<string>>();
  expectTypeOf<Data["id"]>().toEqualTypeOf<string>();
  expectTypeOf<Data["address"]>().toEqualTypeOf<{ street: string } | undefined | Erased | Encrypted>();
  expectTypeOf<Data["guests"][number]["name"]>().toEqualTypeOf<string | Erased | Encrypted>();
  expectTypeOf<Data["guests"][number]["seat"]>().toEqualTypeOf<number>();
});

test("C6: a requester must check personal fields of the reply", () => {
  const Lookup = command("people.lookup", {
    schema: z.object({ id: z.string() }),
    reply: z.object({ city: z.string(), plan: z.string() }),
    personal: { subject: ({ id }) => id, fields: ["id"], reply: ["city"] },
  });
  expectTypeOf<ReplyOf<typeof Lookup>["city"]>().toEqualTypeOf<Personal<string>>();
  expectTypeOf<ReplyOf<typeof Lookup>["plan"]>().toEqualTypeOf<string>();
});

test("C6: a publisher passes plain values", () => {
  expectTypeOf<InputOf<typeof Registered>["email"]>().toEqualTypeOf<string>();
});

test("C6: a path that does not exist does not compile", () => {
  const schema = z.object({ id: z.string(), email: z.string() });
  // @ts-expect-error there is no such field
  event("people.wrong", { schema, personal: { subject: ({ id }) => id, fields: ["emial"] } });
});
