import { expect, test } from "vitest";
import { formatEncryptedHeader, parseEncryptedHeader } from "./encrypted-format.ts";

const keyId = "k".repeat(22);

test("C6: a formatted header is parsed again, and is ASCII for any field names", () => {
  const header = formatEncryptedHeader({ keyId, fields: ["größe", "a.*.b", "名前"] });
  expect(header).toMatch(/^[\x20-\x7e]+$/);
  expect(parseEncryptedHeader(header)).toEqual({ keyId, fields: ["größe", "a.*.b", "名前"] });
});

test.each([
  "",
  "[]",
  "null",
  "{",
  "a,b",
  `{"key":"short","fields":["a"]}`,
  `{"key":"${keyId}","fields":[]}`,
  `{"key":"${keyId}","fields":[1]}`,
  `{"key":"${keyId}","fields":[""]}`,
  `{"key":"${keyId}","fields":"a"}`,
  `{"key":"${keyId}","fields":["${"a".repeat(600)}"]}`,
  JSON.stringify({ key: keyId, fields: Array.from({ length: 300 }, () => "a") }),
  " ".repeat(10_000),
])("SEC-43: %j says nothing that is believed", (text) => {
  expect(parseEncryptedHeader(text)).toBeUndefined();
});
