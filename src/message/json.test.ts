import fc from "fast-check";
import { expect, test } from "vitest";
import { isSagaboxError } from "../errors/index.ts";
import { decodeJson, encodeJson, type Json } from "./json.ts";

function refusal(act: () => unknown): { code: string; message: string } {
  try {
    act();
  } catch (error) {
    if (isSagaboxError(error)) return { code: error.code, message: error.message };
    throw error;
  }
  return { code: "accepted", message: "" };
}

const cycle: Record<string, unknown> = {};
cycle["self"] = cycle;

function nestArrays(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level++) value = [value];
  return value;
}

test.each<[what: string, code: string, value: unknown]>([
  ["undefined", "PAYLOAD_NOT_JSON", undefined],
  ["a bigint", "PAYLOAD_NOT_JSON", { id: 1n }],
  ["NaN", "PAYLOAD_NOT_JSON", { n: Number.NaN }],
  ["Infinity", "PAYLOAD_NOT_JSON", [Number.NEGATIVE_INFINITY]],
  ["undefined in a list", "PAYLOAD_NOT_JSON", [undefined]],
  ["a hole in a list", "PAYLOAD_NOT_JSON", Object.assign([], { length: 1 })],
  ["a function", "PAYLOAD_NOT_JSON", { f: () => 1 }],
  ["a symbol", "PAYLOAD_NOT_JSON", { s: Symbol("s") }],
  ["a Date", "PAYLOAD_NOT_JSON", { at: new Date(0) }],
  ["a Map", "PAYLOAD_NOT_JSON", { m: new Map() }],
  ["a Set", "PAYLOAD_NOT_JSON", { s: new Set() }],
  ["a Buffer", "PAYLOAD_NOT_JSON", { b: Buffer.from("x") }],
  ["a boxed text", "PAYLOAD_NOT_JSON", { t: new String("x") }],
  ["a class instance", "PAYLOAD_NOT_JSON", { i: new (class Money {})() }],
  ["an array with toJSON", "PAYLOAD_NOT_JSON", Object.assign([1], { toJSON: () => 2 })],
  ["a NUL in a text", "PAYLOAD_NUL", { t: "a\u0000b" }],
  ["a NUL in a key", "PAYLOAD_NUL", { "a\u0000b": 1 }],
  ["a high surrogate alone", "PAYLOAD_LONE_SURROGATE", ["\ud83d"]],
  ["a low surrogate alone", "PAYLOAD_LONE_SURROGATE", ["\ude00 x"]],
  ["a lone surrogate in a key", "PAYLOAD_LONE_SURROGATE", { "\udc00": 1 }],
  ["2^53", "PAYLOAD_UNSAFE_INTEGER", { id: 2 ** 53 }],
  ["-2^53", "PAYLOAD_UNSAFE_INTEGER", { id: -(2 ** 53) }],
  ["1e300", "PAYLOAD_UNSAFE_INTEGER", 1e300],
  ["a cycle", "PAYLOAD_TOO_DEEP", cycle],
  ["65 levels", "PAYLOAD_TOO_DEEP", nestArrays(65)],
  ["an own __proto__", "PAYLOAD_PROTOTYPE_KEY", JSON.parse('{"__proto__":{"x":1}}')],
  ["an own constructor", "PAYLOAD_PROTOTYPE_KEY", { a: { constructor: 1 } }],
  ["an own prototype", "PAYLOAD_PROTOTYPE_KEY", { prototype: 1 }],
  ["more than a megabyte", "PAYLOAD_TOO_LARGE", "x".repeat(1_048_576)],
  ["more than a megabyte as UTF-8", "PAYLOAD_TOO_LARGE", "€".repeat(400_000)],
])("%s is refused as %s", (_, code, value) => {
  expect(refusal(() => encodeJson(value)).code).toBe(code);
});

test.each<[what: string, value: unknown, text: string]>([
  ["null", null, "null"],
  ["-0 becomes 0", -0, "0"],
  ["an undefined property is left out", { a: undefined, b: 1 }, '{"b":1}'],
  ["the largest safe integer", Number.MAX_SAFE_INTEGER, "9007199254740991"],
  ["an object without prototype", Object.assign(Object.create(null), { a: 1 }), '{"a":1}'],
  ["a text that merely spells a NUL escape", "\\u0000", '"\\\\u0000"'],
  ["a text that merely spells a surrogate escape", "\\ud83d", '"\\\\ud83d"'],
  ["an emoji", "😀", '"😀"'],
  ["other control characters", "\u0001\n", '"\\u0001\\n"'],
  ["64 levels", nestArrays(64), `${"[".repeat(64)}1${"]".repeat(64)}`],
])("%s is accepted", (_, value, text) => {
  expect(encodeJson(value)).toBe(text);
});

test("the error starts with the given subject", () => {
  expect(() => encodeJson({ at: new Date(0) }, { what: "The reply" })).toThrow(/^The reply at at is /);
});

test("the error for a large payload suggests attachments and the claim check", () => {
  const { message } = refusal(() => encodeJson("x".repeat(64), { maxBytes: 32 }));
  expect(message).toMatch(/larger than 32 bytes; attach it with bus\.attach\(\), or .* up to its `maxBytes`/);
});

test.each<[value: unknown, what: string]>([
  [1n, "a BigInt, which JSON cannot carry unchanged; send it as a string"],
  [Number.NaN, "NaN, "],
  [Number.NEGATIVE_INFINITY, "-Infinity, "],
  [new Date(0), "a Date, which JSON cannot carry unchanged; send its toISOString()"],
  [new Map([["hunter2", 1]]), "a Map, "],
  [new Set(["hunter2"]), "a Set, "],
  [Buffer.from("hunter2"), "bytes, "],
  [() => "hunter2", "a function, "],
  [Symbol("hunter2"), "a symbol, "],
  [[undefined], "undefined, "],
  [Object.assign(["hunter2"], { toJSON: () => 2 }), "an array with toJSON, "],
  [new (class Money {})(), "an instance of Money, "],
  [new String("hunter2"), "an instance of String, "],
  [Object.create({ constructor: { name: "hunter2 says" } }), "an instance of a class, "],
])("the error says what was found: %o is %s", (value, what) => {
  const { message } = refusal(() => encodeJson({ field: value }));
  expect(message).toMatch(/^The payload at field(\[0\])? is /);
  expect(message).toContain(` is ${what}`);
  expect(message).not.toContain("hunter2");
});

test("the message shortens a deep path, the issue has all of it", () => {
  const whole = Array.from({ length: 64 }, () => "self").join(".");
  expect(() => encodeJson(cycle)).toThrowError(
    expect.objectContaining({ issues: [expect.objectContaining({ path: whole })] }) as Error,
  );
  expect(refusal(() => encodeJson(cycle)).message).toBe(
    "The payload at self.self.self.self … self.self.self.self is nested too deeply, or contains itself.",
  );
});

test("the error names the path and never the value", () => {
  const value = { lines: [{ price: 1 }, { "unit price": Number.NaN, secret: "hunter2" }] };
  const { message } = refusal(() => encodeJson(value));
  expect(message).toContain('lines[1]["unit price"]');
  expect(message).not.toContain("hunter2");
  expect(refusal(() => encodeJson({ a: [{ b: "hunter2\u0000" }] })).message).toContain(
    "at a[0].b contains a NUL",
  );
});

test("the search stops when shared references exceed the limit", () => {
  let value: unknown = [1, 1];
  for (let level = 0; level < 60; level++) value = [value, value];
  expect(refusal(() => encodeJson(value)).code).toBe("PAYLOAD_TOO_LARGE");
});

test("limits can be set", () => {
  expect(refusal(() => encodeJson("€€", { maxBytes: 7 })).code).toBe("PAYLOAD_TOO_LARGE");
  expect(encodeJson("€€", { maxBytes: 8 })).toBe('"€€"');
  expect(refusal(() => decodeJson("[[1]]", { maxDepth: 1 })).code).toBe("PAYLOAD_TOO_DEEP");
});

test.each<[what: string, code: string, text: string]>([
  ["no JSON", "PAYLOAD_NOT_JSON", "{hunter2}"],
  ["an empty text", "PAYLOAD_NOT_JSON", ""],
  ["a trailing comma", "PAYLOAD_NOT_JSON", "[1,]"],
  ["a number beyond doubles", "PAYLOAD_NOT_JSON", "1e999"],
  ["a repeated key", "PAYLOAD_DUPLICATE_KEY", '{"a":1,"a":2}'],
  ["a repeated key deep down", "PAYLOAD_DUPLICATE_KEY", '[{"b":[{"a" : 1, "c":"\\"", "a"\n:2}]}]'],
  ["a key repeated in another spelling", "PAYLOAD_DUPLICATE_KEY", '{"a":1,"\\u0061":2}'],
  ["a __proto__ key", "PAYLOAD_PROTOTYPE_KEY", '{"a":{"__proto__":{"polluted":true}}}'],
  ["an escaped __proto__ key", "PAYLOAD_PROTOTYPE_KEY", '{"\\u005f_proto__":1}'],
  ["a constructor key", "PAYLOAD_PROTOTYPE_KEY", '{"constructor":{"prototype":{"polluted":true}}}'],
  ["an integer that does not survive", "PAYLOAD_UNSAFE_INTEGER", '{"id":9007199254740993}'],
  ["a NUL escape", "PAYLOAD_NUL", '"\\u0000"'],
  ["a lone surrogate escape", "PAYLOAD_LONE_SURROGATE", '"\\uD83D"'],
  ["a lone surrogate as it is", "PAYLOAD_LONE_SURROGATE", '"\ud83d"'],
  ["100,000 levels", "PAYLOAD_TOO_DEEP", "[".repeat(100_000) + "]".repeat(100_000)],
  ["a large text", "PAYLOAD_TOO_LARGE", `"${"x".repeat(1_048_576)}"`],
])("reading %s is refused as %s", (_, code, text) => {
  const { code: actual, message } = refusal(() => decodeJson(text));
  expect(actual).toBe(code);
  expect(message).not.toContain("hunter2");
});

test("strings with colons, quotes and backslashes do not count as keys", () => {
  const value = { a: '":":"', b: "\\", c: '\\"', d: ['"', ":", "\\\\"], "e:": { '"': ":" } };
  expect(decodeJson(JSON.stringify(value, null, 2))).toEqual(value);
});

test("a pair of surrogate escapes is read as its character", () => {
  expect(decodeJson('"\\ud83d\\ude00"')).toBe("😀");
});

test("accepted values survive encoding and decoding", () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 6, stringUnit: "binary" }), (value) => {
      const text = attempt(() => encodeJson(value));
      if (text !== undefined) expect(decodeJson(text)).toEqual(JSON.parse(JSON.stringify(value)));
    }),
    { numRuns: 2_000 },
  );
});

test("nothing is accepted that JSON.stringify would change silently", () => {
  fc.assert(
    fc.property(fc.anything({ withBigInt: true, withDate: true, withMap: true, withSet: true }), (value) => {
      const text = attempt(() => encodeJson(value));
      if (text !== undefined) expect(JSON.parse(text)).toEqual(positiveZero(value));
    }),
    { numRuns: 2_000 },
  );
});

test("100,000 odd inputs leave Object.prototype as it was", () => {
  const before = Object.getOwnPropertyNames(Object.prototype).sort();
  const keys = ["__proto__", "constructor", "prototype", "a", "\\u005f_proto__", "toString"];
  const pick = (seed: number) => keys[seed % keys.length] ?? "";
  for (let seed = 0; seed < 100_000; seed++) {
    const inner = `{"${pick(seed)}":{"${pick(seed >> 3)}":{"polluted${seed}":1}},"${pick(seed >> 6)}":[]}`;
    attempt(() => encodeJson(decodeJson(inner)));
  }
  expect(Object.getOwnPropertyNames(Object.prototype).sort()).toEqual(before);
});

function attempt<T>(act: () => T): T | undefined {
  try {
    return act();
  } catch (error) {
    if (isSagaboxError(error)) return undefined;
    throw error;
  }
}

function positiveZero(value: unknown): unknown {
  if (Object.is(value, -0)) return 0;
  if (Array.isArray(value)) return value.map(positiveZero);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(entries.map(([key, item]) => [key, positiveZero(item) as Json]));
}
