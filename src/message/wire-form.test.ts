import type { StandardSchemaV1 } from "@standard-schema/spec";
import { type } from "arktype";
import fc from "fast-check";
import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { encodeJson } from "./json.ts";
import { toWire, validateIfSync, wireSchema } from "./wire-form.ts";

/** Sends data as a message would be sent: as the text of its wire form. */
async function send(schema: StandardSchemaV1, input: unknown): Promise<string> {
  return encodeJson(await toWire(schema, 'event "x"', input));
}

async function run(schema: StandardSchemaV1, input: unknown): Promise<unknown> {
  const result = await schema["~standard"].validate(input);
  if (result.issues !== undefined) throw new Error(result.issues.map(({ message }) => message).join());
  return result.value;
}

/** A property that is undefined is left out of JSON, and -0 becomes 0. */
function normalize(value: unknown): unknown {
  if (value === 0) return 0;
  if (typeof value !== "object" || value === null || value instanceof Date) return value;
  if (Array.isArray(value)) return value.map(normalize);
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(entries.map(([key, item]) => [key, normalize(item)]));
}

const amount = fc.integer({ min: -1_000_000, max: 1_000_000 });
const date = fc.date({ noInvalidDate: true, min: new Date(0), max: new Date("9999-01-01") });
const more = fc.dictionary(
  fc.stringMatching(/^x[a-z]{0,3}$/),
  fc.oneof(fc.string(), amount, fc.array(amount, { maxLength: 2 })),
  { maxKeys: 3 },
);
const withMore = (shape: fc.Arbitrary<object>) =>
  fc.tuple(shape, more).map(([data, rest]) => ({ ...rest, ...data }));
const isText = fc.oneof(fc.string(), amount.map(String));

interface Case {
  readonly schema: StandardSchemaV1;
  readonly input: fc.Arbitrary<unknown>;
}

const cases: Record<string, Case> = {
  "zod: no transform": {
    schema: z.object({ id: z.string(), n: z.number() }),
    input: withMore(fc.record({ id: fc.string(), n: amount })),
  },
  "zod: a transform that keeps the type": {
    schema: z.object({ total: z.number().transform((n) => n * 100), note: z.string().optional() }),
    input: withMore(
      fc.record(
        { total: amount, note: fc.option(fc.string(), { nil: undefined }) },
        { requiredKeys: ["total"] },
      ),
    ),
  },
  "zod: a transform that changes the type": {
    schema: z.object({ n: z.string().transform((text) => text.length) }),
    input: withMore(fc.record({ n: fc.string() })),
  },
  "zod: defaults beside a transform": {
    schema: z.object({ a: z.number().default(7), total: z.number().transform((n) => n + 1) }),
    input: fc.record({ a: amount, total: amount }, { requiredKeys: ["total"] }),
  },
  "zod: a default that differs on each call": {
    schema: z.object({ id: z.string().default(() => crypto.randomUUID()), n: z.coerce.number() }),
    input: fc.record({ id: fc.string(), n: fc.oneof(amount, amount.map(String)) }, { requiredKeys: ["n"] }),
  },
  "zod: coercion": {
    schema: z.object({ at: z.coerce.date(), n: z.coerce.number(), t: z.coerce.string() }),
    input: withMore(
      fc.record({
        at: fc.oneof(
          date,
          date.map((d) => d.toISOString()),
        ),
        n: amount,
        t: fc.oneof(isText, amount),
      }),
    ),
  },
  "zod: a codec": {
    schema: z.object({
      at: z.codec(z.iso.datetime(), z.date(), {
        decode: (text) => new Date(text),
        encode: (at) => at.toISOString(),
      }),
    }),
    input: fc.record({ at: date.map((d) => d.toISOString()) }),
  },
  "zod: an output that is not JSON": {
    schema: z.array(z.string()).transform((list) => new Map(list.map((item, index) => [index, { item }]))),
    input: fc.array(fc.string()),
  },
  "zod: a union whose options read the output of others": {
    schema: z.union([
      z.object({ b: z.number() }),
      z.object({ a: z.number(), b: z.number().default(1) }),
      z.string().transform((text) => ({ a: text.length })),
    ]),
    input: fc.oneof(withMore(fc.record({ a: amount, b: amount }, { requiredKeys: ["a"] })), fc.string()),
  },
  "zod: an asynchronous transform": {
    schema: z.object({ n: z.number().transform(async (n) => Promise.resolve(n - 1)) }),
    input: fc.record({ n: amount }),
  },
  "valibot: transforms, defaults, coercion and stripped keys": {
    schema: v.object({
      total: v.pipe(
        v.number(),
        v.transform((n) => n * 100),
      ),
      length: v.pipe(
        v.string(),
        v.transform((text) => text.length),
      ),
      name: v.optional(v.pipe(v.string(), v.trim()), " Ada "),
      at: v.pipe(
        v.union([v.string(), v.date()]),
        v.transform((value) => new Date(value)),
        v.date(),
      ),
    }),
    input: withMore(
      fc.record(
        {
          total: amount,
          length: fc.string(),
          name: fc.string(),
          at: fc.oneof(
            date,
            date.map((d) => d.toJSON()),
          ),
        },
        { requiredKeys: ["total", "length", "at"] },
      ),
    ),
  },
  "valibot: stripped keys and defaults": {
    schema: v.object({ id: v.string(), tags: v.optional(v.array(v.string()), []) }),
    input: withMore(fc.record({ id: fc.string(), tags: fc.array(fc.string()) }, { requiredKeys: ["id"] })),
  },
  "valibot: a union": {
    schema: v.union([
      v.object({ kind: v.literal("sum"), n: v.pipe(v.string(), v.transform(Number)) }),
      v.object({ n: v.number() }),
    ]),
    input: fc.oneof(
      withMore(fc.record({ kind: fc.constant("sum"), n: amount.map(String) })),
      withMore(fc.record({ n: amount })),
    ),
  },
  "arktype: morphs, defaults and coercion": {
    schema: type({
      total: type("number").pipe((n) => n * 100),
      n: "string.integer.parse",
      at: "string.date.iso.parse",
      name: "string = 'Ada'",
    }) as never,
    input: withMore(
      fc.record(
        { total: amount, n: amount.map(String), at: date.map((d) => d.toISOString()), name: fc.string() },
        { requiredKeys: ["total", "n", "at"] },
      ),
    ),
  },
  "arktype: stripped keys": {
    schema: type({ "+": "delete", id: "string" }),
    input: withMore(fc.record({ id: fc.string() })),
  },
  "arktype: a union": {
    schema: type({ kind: "'a'", n: "string.integer.parse" }).or({ kind: "'b'", n: "number" }),
    input: fc.oneof(
      fc.record({ kind: fc.constant("a"), n: amount.map(String) }),
      fc.record({ kind: fc.constant("b"), n: amount }),
    ),
  },
};

describe.each(Object.entries(cases))("%s", (_, { schema, input }) => {
  const isRandom = async (given: unknown) =>
    JSON.stringify(await run(schema, given)) !== JSON.stringify(await run(schema, given));

  test("a handler gets what the schema makes of the publisher's data, once", async () => {
    await fc.assert(
      fc.asyncProperty(input, async (given) => {
        fc.pre(!(await isRandom(given)));
        const received = await run(schema, JSON.parse(await send(schema, given)));
        expect(normalize(received)).toEqual(normalize(await run(schema, given)));
      }),
      { numRuns: 60 },
    );
  });

  test("a message that is sent again carries the same data", async () => {
    await fc.assert(
      fc.asyncProperty(input, async (given) => {
        const text = await send(schema, given);
        const wire: unknown = JSON.parse(text);
        const again = await run(wireSchema(schema, "x"), wire);
        expect(await run(schema, again)).toEqual(await run(schema, wire));
      }),
      { numRuns: 60 },
    );
  });
});

test("the wire carries the output if the schema accepts it unchanged", async () => {
  const schema = z.object({ id: z.string(), n: z.number().default(1), at: z.coerce.date() });
  const at = new Date("2026-01-02T03:04:05.678Z");
  expect(await send(schema, { id: "a", at, unknown: true })).toBe(
    '{"id":"a","n":1,"at":"2026-01-02T03:04:05.678Z"}',
  );
});

test("the wire carries the input if the schema would change the output", async () => {
  const schema = z.object({ total: z.number().transform((n) => n * 100) });
  expect(await send(schema, { total: 5, unknown: true })).toBe('{"total":5,"unknown":true}');
});

test("data that the schema does not change are validated once", async () => {
  let runs = 0;
  const counted = z.object({ a: z.array(z.string()) }).refine(() => ++runs > 0);
  await send(counted, { a: ["b", "c"] });
  expect(runs).toBe(1);
});

describe("refusals name the path and what to do", () => {
  const random = z.object({
    lines: z.array(
      z.object({ id: z.string().default(() => crypto.randomUUID()), n: z.number().transform((n) => n + 1) }),
    ),
  });
  test("a value that differs on each call beside a transform", async () => {
    await expect(send(random, { lines: [{ n: 1 }] })).rejects.toMatchObject({
      code: "PAYLOAD_NOT_REPEATABLE",
      message: expect.stringMatching(/event "x" cannot be sent at lines\[0\]\.id: .*before you publish/s),
      issues: [{ path: "lines[0].id" }],
    });
  });

  test("a Date that the schema does not read from a string", async () => {
    await expect(send(z.object({ at: z.date() }), { at: new Date(0) })).rejects.toMatchObject({
      code: "PAYLOAD_NOT_JSON",
      message: expect.stringContaining(
        "at at is a Date, which JSON cannot carry unchanged; send its toISOString()",
      ),
    });
    await expect(send(z.any(), { at: new Date(0) })).rejects.toMatchObject({ issues: [{ path: "at" }] });
  });

  test("an input that JSON cannot carry", async () => {
    await expect(send(z.object({ n: z.coerce.bigint() }), { n: 5n })).rejects.toMatchObject({
      code: "PAYLOAD_NOT_JSON",
      issues: [{ path: "n" }],
    });
    expect(await send(z.object({ n: z.coerce.bigint() }), { n: "5" })).toBe('{"n":"5"}');
  });

  test("values without end", async () => {
    const circle: Record<string, unknown> = {};
    circle["self"] = circle;
    await expect(send(z.any(), circle)).rejects.toMatchObject({ code: "PAYLOAD_TOO_DEEP" });
  });
});

test("stored data that the schema rejects are read unchanged", () => {
  const schema = z.object({ n: z.string().transform(Number) });
  const stored = { n: "5" };
  expect(validateIfSync(schema, stored)).toEqual({ n: 5 });
  expect(validateIfSync(schema, stored)).toBe(validateIfSync(schema, stored));
  expect(validateIfSync(schema, { n: { $erased: true } })).toEqual({ n: { $erased: true } });
  expect(
    validateIfSync(
      z.string().transform(async (text) => Promise.resolve(text.length)),
      "abc",
    ),
  ).toBe("abc");
});
