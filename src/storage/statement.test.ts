import fc from "fast-check";
import { expect, test } from "vitest";
import { quoteSchema } from "./statement.ts";

test.each(["sagabox", "_", "a1_b", "select", "a".repeat(63)])("%s is a schema name", (name) => {
  expect(quoteSchema(name)).toBe(`"${name}"`);
});

test.each([
  "",
  "1a",
  "A",
  "pg_x",
  "a b",
  'a"',
  "a;b",
  "a\n",
  "ä",
  "a-b",
  "a.b",
  "a".repeat(64),
  "sagabox\u0000",
])("%j is refused", (name) => {
  expect(() => quoteSchema(name)).toThrowError(expect.objectContaining({ code: "SCHEMA_NAME_INVALID" }));
});

test("of a hundred thousand arbitrary texts none gets through with a character that could end the quotes", () => {
  const pieces = fc.constantFrom(
    '"',
    ";",
    "--",
    "'",
    "\\",
    "\n",
    "\u0000",
    "$$",
    "a",
    "_",
    "9",
    "pg_",
    "Ä",
    " ",
  );
  const text = fc.oneof(
    fc.string(),
    fc.string({ unit: "binary" }),
    fc.array(pieces).map((parts) => parts.join("")),
  );
  fc.assert(
    fc.property(text, (name) => {
      let quoted: string;
      try {
        quoted = quoteSchema(name);
      } catch {
        return true;
      }
      return /^"[a-z_][a-z0-9_]{0,62}"$/.test(quoted) && !quoted.startsWith('"pg_');
    }),
    { numRuns: 100_000 },
  );
});
