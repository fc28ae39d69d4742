import fc from "fast-check";
import { expect, test } from "vitest";
import { diffLines, isJson, prettyPrint, tokenize } from "./json-text.ts";

test("an integer of more than 53 bits keeps every digit", () => {
  expect(prettyPrint('{"id":9007199254740993,"list":[1,{}],"none":null}')).toBe(
    '{\n  "id": 9007199254740993,\n  "list": [\n    1,\n    {}\n  ],\n  "none": null\n}',
  );
});

test("pretty printing changes white space only", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const text = JSON.stringify(value);
      expect(JSON.parse(prettyPrint(text))).toEqual(JSON.parse(text));
    }),
  );
});

test("text that is not JSON is shown unchanged", () => {
  expect(isJson("<b>{")).toBe(false);
  expect(prettyPrint("<b>{")).toBe("<b>{");
});

test("no character is lost between tokens", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      expect(
        tokenize(text)
          .map((token) => token.text)
          .join(""),
      ).toBe(text);
    }),
  );
});

test("keys, strings, numbers and words are told apart", () => {
  expect(
    tokenize('{"a": ["b", -1.5e3, true]}').filter(({ kind }) => kind !== "space" && kind !== "mark"),
  ).toEqual([
    { kind: "key", text: '"a"' },
    { kind: "string", text: '"b"' },
    { kind: "number", text: "-1.5e3" },
    { kind: "word", text: "true" },
  ]);
});

test("a difference is the shortest list of removed and added lines", () => {
  expect(diffLines("a\nb\nc", "a\nx\nc").map(({ kind, text }) => `${kind} ${text}`)).toEqual([
    "same a",
    "removed b",
    "added x",
    "same c",
  ]);
});

test("the lines of a difference rebuild both texts", () => {
  const text = fc
    .array(fc.constantFrom("a", "b", "c"), { minLength: 1, maxLength: 12 })
    .map((lines) => lines.join("\n"));
  fc.assert(
    fc.property(text, text, (before, after) => {
      const lines = diffLines(before, after);
      const rebuild = (left: string): string =>
        lines
          .filter(({ kind }) => kind !== left)
          .map((line) => line.text)
          .join("\n");
      expect([rebuild("added"), rebuild("removed")]).toEqual([before, after]);
    }),
  );
});
