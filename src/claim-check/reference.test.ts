import fc from "fast-check";
import { expect, test } from "vitest";
import { isSagaboxError } from "../errors/index.ts";
import { asAttachment, isBlobReference, type BlobReference } from "../message/index.ts";
import { seededRandom, withoutStacks } from "../../test/support/random-data.ts";
import { readReference, referenceText } from "./claim-check.ts";

const good: BlobReference = {
  store: "s3",
  key: `${"0f".repeat(6)}/2026-11-16/${"9c".repeat(16)}`,
  bytes: 5_000_000,
  sha256: "ab".repeat(32),
};
const text = referenceText(good);
const MAX_BYTES = 64 * 1_048_576;

test("a formatted reference is parsed to the same values", () => {
  expect(readReference(text, MAX_BYTES)).toEqual(good);
});

test("a reference larger than maxBytes is rejected before it is fetched", () => {
  expect(() => readReference(text, 4_999_999)).toThrow(
    expect.objectContaining({ code: "PAYLOAD_TOO_LARGE" }),
  );
});

test.each([
  "../../etc/passwd",
  "/etc/passwd",
  "http://evil.example/x",
  "file:///etc/passwd",
  "%2e%2e%2fsecret",
  `${"0f".repeat(6)}/2026-11-16/../${"9c".repeat(16)}`,
  `${"0f".repeat(6)}/2026-11-16/${"9c".repeat(16)}\0`,
  `${"0f".repeat(6)}/2026-11-16/${"9c".repeat(16)}\n`,
  `${"0F".repeat(6)}/2026-11-16/${"9c".repeat(16)}`,
  `${"0f".repeat(6)}/2026-13-16/${"9c".repeat(16)}`,
  `${"0f".repeat(6)}\\2026-11-16\\${"9c".repeat(16)}`,
  "",
])("the key %j is rejected", (key) => {
  expect(() => readReference(JSON.stringify({ $claim: { ...good, key } }), MAX_BYTES)).toThrow(
    expect.objectContaining({ code: "CLAIM_INVALID" }),
  );
});

test.each([
  ["another field", { $claim: { ...good, url: "http://evil.example" } }],
  ["a second top-level field", { $claim: good, url: "x" }],
  ["no field", {}],
  ["a missing field", { $claim: { store: "s3", key: good.key, bytes: 1 } }],
  ["an array", [good]],
  ["a negative length", { $claim: { ...good, bytes: -1 } }],
  ["half a byte", { $claim: { ...good, bytes: 1.5 } }],
  ["a length as a string", { $claim: { ...good, bytes: "5" } }],
  ["a short hash", { $claim: { ...good, sha256: "ab" } }],
  ["a store in a path", { $claim: { ...good, store: "../s3" } }],
  ["null", null],
  ["a string", "claim"],
])("%s is rejected", (_, value) => {
  expect(() => readReference(JSON.stringify(value), MAX_BYTES)).toThrow(
    expect.objectContaining({ code: "CLAIM_INVALID" }),
  );
});

// Any input is either rejected with a SagaboxError or is a reference in canonical form.
function judge(input: string): "rejected" | "accepted" {
  try {
    const found = readReference(input, MAX_BYTES);
    expect(isBlobReference(found)).toBe(true);
    expect(JSON.parse(referenceText(found))).toEqual(JSON.parse(input));
    return "accepted";
  } catch (error) {
    if (!isSagaboxError(error, "CLAIM_INVALID") && !isSagaboxError(error, "PAYLOAD_TOO_LARGE")) throw error;
    return "rejected";
  }
}

test("100,000 mutated references are rejected or canonical", { timeout: 60_000 }, () => {
  withoutStacks();
  const random = seededRandom(5);
  const below = (n: number): number => Math.floor(random() * n);
  const bits = [
    "..",
    "/",
    "\\",
    "\\u0000",
    '"',
    "}",
    "{",
    ",",
    "9",
    "é",
    "\0",
    "http://",
    "1e9",
    " ",
    "$claim",
    "\ud800",
  ];
  let rejected = 0;
  for (let n = 0; n < 100_000; n++) {
    let mutated = text;
    for (let edits = 1 + below(4); edits > 0; edits--) {
      const at = below(mutated.length);
      const put = random() < 0.5 ? (bits[below(bits.length)] ?? "") : String.fromCharCode(below(256));
      mutated = mutated.slice(0, at) + put + mutated.slice(at + below(7));
    }
    if (judge(mutated) === "rejected") rejected += 1;
  }
  expect(rejected).toBeGreaterThan(83_000);
});

test("arbitrary JSON is not accepted as a reference or an attachment", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      judge(JSON.stringify(value));
      judge(JSON.stringify({ $claim: value }));
      expect(asAttachment({ $attachment: value })).toBeUndefined();
    }),
    { numRuns: 1_000 },
  );
});
