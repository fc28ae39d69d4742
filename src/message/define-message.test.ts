import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import {
  command,
  event,
  readMessageKey,
  stream,
  upcast,
  validate,
  validateReply,
  type AnyContract,
} from "./index.ts";

const OrderPlaced = event("orders.order.placed", {
  version: 3,
  schema: z.object({ orderId: z.string(), contact: z.object({ email: z.email() }), total: z.number() }),
  key: (data) => data.orderId,
  personal: { subject: (data) => data.orderId, fields: ["contact.email"] },
  upcast: { 1: (v1) => ({ ...v1, total: v1.amount }), 2: (v2) => ({ ...v2, contact: { email: v2.email } }) },
  ttl: "5m",
  topic: "orders",
  aggregate: "order",
});

test("a contract has validated options and defaults", () => {
  expect(OrderPlaced).toMatchObject({
    kind: "event",
    name: "orders.order.placed",
    version: 3,
    topic: "orders",
    ttlMs: 300_000,
    reply: null,

    priority: 5,
    order: "commit",
    onDead: "continue",
    maxAttempts: null,
    aggregate: "order",
    target: null,
  });
  expect(OrderPlaced.personal?.fields).toEqual(["contact.email"]);
});

test("a contract cannot be changed", () => {
  expect(Object.isFrozen(OrderPlaced)).toBe(true);
  expect(Object.isFrozen(OrderPlaced.upcast)).toBe(true);
  expect(Object.isFrozen(OrderPlaced.personal?.fields)).toBe(true);
});

test("commands have a target and a reply, streams a kind of their own", async () => {
  const Reserve = command("stock.reserve", {
    schema: z.object({}),
    reply: z.object({ id: z.string() }),
    target: "stock",
  });
  expect(Reserve).toMatchObject({ kind: "command", target: "stock" });
  expect(await validateReply(Reserve, { id: "r-1", more: 1 })).toEqual({ id: "r-1" });
  expect(() => validateReply(Reserve, {})).toThrowError(/the reply to "stock.reserve"/);
  expect(validateReply(command("mail.send", { schema: z.object({}) }), "ignored")).toBeUndefined();
  expect(stream("sensor.reading", { schema: z.object({}) }).kind).toBe("stream");
});

describe("a contract is refused", () => {
  const schema = z.object({ a: z.string() });
  // The compiler refuses most of these too; JavaScript callers and casts get here.
  const define = event as unknown as (name: string, options: unknown) => AnyContract;

  test.each(["", "9lives", "a b", "ä", "x".repeat(256), "../a", "__proto__"])("for the name %j", (name) => {
    expect(() => define(name, { schema })).toThrowError(
      expect.objectContaining({ code: "CONTRACT_INVALID" }),
    );
  });

  test.each<[options: Record<string, unknown>, rule: RegExp]>([
    [{ schema: {} }, /Standard Schema/],
    [{ schema: undefined }, /Standard Schema/],
    [{ version: 0 }, /version must/],
    [{ version: 1.5 }, /version must/],
    [{ key: "orderId" }, /key must be a function/],
    [{ ttl: "soon" }, /ttl must/],
    [{ ttl: 0 }, /ttl must/],
    [{ ttl: "3651d" }, /up to "3650d"/],
    [{ priority: 10 }, /priority must/],
    [{ maxAttempts: 0 }, /maxAttempts must/],
    [{ order: "any" }, /order must/],
    [{ order: "strict" }, /needs a key/],
    [{ onDead: "stop" }, /onDead must/],
    [{ onDead: "hold" }, /needs a key/],
    [{ topic: "a b" }, /topic must/],
    [{ aggregate: "" }, /aggregate must/],
    [{ target: "stock" }, /no option "target"/],
    [{ shema: 1 }, /there is no option "shema"; did you mean "schema"\?$/],
    [{ colour: 1 }, /there is no option "colour"; known options: schema, .*aggregate\.$/],
    [{ personal: { fields: [] } }, /personal needs/],
    [{ upcast: 1 }, /upcast must/],
    [{ version: 2, upcast: { 2: () => 1 } }, /versions before 2/],
    [{ version: 2, upcast: { 0: () => 1 } }, /versions before 2/],
    [{ version: 4, upcast: { 1: () => 1, 3: () => 1 } }, /lacks the step from version 2 to 3/],
    [{ version: 3, upcast: { 1: () => 1 } }, /lacks the step from version 2 to 3/],
    [{ version: 2, upcast: { 1: "x" } }, /must be a function/],
  ])("for %o", (options, rule) => {
    expect(() => define("x", { schema, ...options })).toThrowError(rule);
  });
});

test("the upcasters may start at a later version", () => {
  const late = event("x", {
    version: 3,
    schema: z.object({ a: z.number() }),
    upcast: { 2: (v2) => ({ a: v2.b }) },
  });
  expect(upcast(late, 2, { b: 1 })).toEqual({ a: 1 });
  expect(() => upcast(late, 1, {})).toThrowError(/reads versions 2 to 3/);
});

test("data of every older version is converted to the current one", () => {
  const current = { orderId: "o", contact: { email: "a@b.org" }, total: 1 };
  expect(upcast(OrderPlaced, 3, current)).toBe(current);
  expect(upcast(OrderPlaced, 2, { orderId: "o", email: "a@b.org", total: 1 })).toMatchObject(current);
  expect(upcast(OrderPlaced, 1, { orderId: "o", email: "a@b.org", amount: 1 })).toMatchObject(current);
});

test.each([0, 4, -1, 1.5, Number.NaN])("data of version %d cannot be read", (version) => {
  expect(() => upcast(OrderPlaced, version, {})).toThrowError(
    expect.objectContaining({ code: "PAYLOAD_VERSION_UNKNOWN" }),
  );
});

test("a failing upcaster is named in the error, with its cause", () => {
  const broken = event("x", { version: 2, schema: z.object({}), upcast: { 1: (v1) => v1.a.b.c } });
  expect(() => upcast(broken, 1, {})).toThrowError(/from version 1 to 2 failed/);
});

test("the key is a string of 1 to 255 characters", () => {
  expect(readMessageKey(OrderPlaced, { orderId: "ORD-1" })).toBe("ORD-1");
  expect(readMessageKey(event("x", { schema: z.object({}) }), {})).toBeNull();
  for (const orderId of ["", " ", "x".repeat(256), "a\u0000", 7, undefined]) {
    expect(() => readMessageKey(OrderPlaced, { orderId })).toThrowError(
      expect.objectContaining({ code: "KEY_INVALID" }),
    );
  }
});

const libraries: [string, AnyContract][] = [
  [
    "zod",
    event("x", { schema: z.object({ user: z.object({ age: z.number() }), tags: z.array(z.string()) }) }),
  ],
  [
    "valibot",
    event("x", { schema: v.object({ user: v.object({ age: v.number() }), tags: v.array(v.string()) }) }),
  ],
  ["arktype", event("x", { schema: type({ user: { age: "number" }, tags: "string[]" }) })],
];

describe.each(libraries)("with a schema of %s", (_, contract) => {
  test("valid data passes", async () => {
    const data = { user: { age: 41 }, tags: ["a"] };
    expect(await validate(contract, data)).toEqual(data);
  });

  test("invalid data is refused with the paths and without the values", () => {
    const act = () => validate(contract, { user: { age: "hunter2" }, tags: ["a", { secret: "swordfish" }] });
    expect(act).toThrowError(
      expect.objectContaining({
        code: "PAYLOAD_INVALID",
        message: expect.not.stringMatching(/hunter2|swordfish/) as string,
        issues: expect.arrayContaining([
          expect.objectContaining({ path: "user.age" }),
          expect.objectContaining({ path: "tags[1]" }),
        ]) as unknown[],
      }),
    );
  });
});

test("a custom message that quotes the value is dropped", () => {
  const schema = z
    .object({ card: z.string() })
    .refine(() => false, { error: (issue) => `bad ${JSON.stringify(issue.input)}` });
  const act = () => validate(event("x", { schema }), { card: "4111111111111111" });
  expect(act).toThrowError(/is not acceptable/);
  expect(act).not.toThrowError(/4111/);
});

test("asynchronous schemas are awaited", async () => {
  const schema = z.object({
    a: z.string().refine(async (text) => Promise.resolve(text === "yes"), "must be yes"),
  });
  const contract = event("x", { schema });
  await expect(validate(contract, { a: "yes" })).resolves.toEqual({ a: "yes" });
  await expect(validate(contract, { a: "no" })).rejects.toThrowError("a: must be yes");
});
