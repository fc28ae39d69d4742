import fc from "fast-check";
import { expect, test } from "vitest";
import { printable, printableJson, withoutPasswords } from "./printable.ts";

// eslint-disable-next-line no-control-regex -- control characters are what this is about
const acts = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/;

test("no text keeps a character that a terminal acts on", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      expect(printable(text)).not.toMatch(acts);
    }),
  );
});

test("ordinary writing of any language stays as it is", () => {
  for (const text of ["Grüße, 世界! 🚀", 'say "hi" \\ bye', "שלום", "naïve e\u0301"]) {
    expect(printable(text)).toBe(text);
  }
});

test("line breaks, colours and direction marks are shown as escapes", () => {
  expect(printable("a\r\nb\u001b[31mc\u202ed\u0007\u009b")).toBe(
    "a\\u000d\\nb\\u001b[31mc\\u202ed\\u0007\\u009b",
  );
  expect(printable("\u{e0041}")).toBe("\\udb40\\udc41");
});

test("a JSON line parses to the same value and holds no deceptive character", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      const line = printableJson({ [text]: text });
      expect(line).not.toMatch(acts);
      expect(JSON.parse(line)).toEqual({ [text]: text });
    }),
  );
});

test.each([
  ["postgres://app:s3cret@db:5432/x", "postgres://app:***@db:5432/x"],
  ["connect postgresql://app:p@s:s/w@db/x failed", "connect postgresql://app:***@db/x failed"],
  ["amqp://guest:guest@mq", "amqp://guest:***@mq"],
  ["host=db password=hunter2 user=app", "host=db password=*** user=app"],
  ["see https://example.com:8080/page", "see https://example.com:8080/page"],
])("the password in %j is not shown", (text, shown) => {
  expect(withoutPasswords(text)).toBe(shown);
});
