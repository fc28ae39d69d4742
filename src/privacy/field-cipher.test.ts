import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { isSagaboxError } from "../errors/index.ts";
import { seededRandom } from "../../test/support/random-data.ts";
import type { DataKey } from "./key-cache.ts";
import { FieldCipher } from "./field-cipher.ts";

const key = (keyId = "k".repeat(22)): DataKey => ({ keyId, subject: "s", bytes: randomBytes(32) });

/** The code of the thrown error, or "opened". */
function outcome(work: () => unknown): string {
  try {
    work();
    return "opened";
  } catch (error) {
    return isSagaboxError(error) ? error.code : String(error);
  }
}

test("SEC-39: a value is decrypted only in its own message and field", () => {
  const one = key();
  const sealer = new FieldCipher(one, { purpose: "message", id: "m1" });
  const sealed = sealer.encrypt({ email: "a@b" }, ["email"]);
  expect(sealer.decrypt(sealed, ["email"])).toEqual({ email: "a@b" });
  const others = [
    () => sealer.decrypt(sealed, ["phone"]),
    () => sealer.decrypt(sealed, ["email", 0]),
    () => new FieldCipher(one, { purpose: "message", id: "m2" }).decrypt(sealed, ["email"]),
    () => new FieldCipher(one, { purpose: "saga", id: "m1" }).decrypt(sealed, ["email"]),
    () =>
      new FieldCipher({ ...key(), keyId: one.keyId }, { purpose: "message", id: "m1" }).decrypt(sealed, [
        "email",
      ]),
    () =>
      new FieldCipher({ ...one, keyId: "z".repeat(22) }, { purpose: "message", id: "m1" }).decrypt(sealed, [
        "email",
      ]),
  ];
  expect(new Set(others.map(outcome))).toEqual(new Set(["PRIVACY_SEAL_BROKEN"]));
});

test("SEC-39, SEC-42: none of 120,000 changed tokens is decrypted, and all fail with the same error", () => {
  const random = seededRandom(20261116);
  const pick = (max: number): number => Math.floor(random() * max);
  const sealer = new FieldCipher(key(), { purpose: "message", id: "m1" });
  const tokens = ["", "a", "a@b.example", "ü".repeat(300)].map(
    (text) => sealer.encrypt(text, ["email"]).$sealed,
  );
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=+/ \n\u0000é";
  const results = new Map<string, number>();
  for (let n = 0; n < 120_000; n++) {
    const token = tokens[n % tokens.length] ?? "";
    const changed = mutate(token, alphabet, pick);
    if (changed === token) continue;
    const said = outcome(() => sealer.decrypt({ $sealed: changed }, ["email"]));
    results.set(said, (results.get(said) ?? 0) + 1);
  }
  expect([...results.keys()]).toEqual(["PRIVACY_SEAL_BROKEN"]);
  expect(results.get("PRIVACY_SEAL_BROKEN")).toBeGreaterThan(100_000);
}, 120_000);

function mutate(token: string, alphabet: string, pick: (max: number) => number): string {
  const at = pick(token.length);
  const char = alphabet[pick(alphabet.length)] ?? "";
  switch (pick(6)) {
    case 0:
      return token.slice(0, at) + char + token.slice(at + 1);
    case 1:
      return token.slice(0, at) + token.slice(at + 1);
    case 2:
      return token.slice(0, at) + char + token.slice(at);
    case 3:
      return token.slice(0, at);
    case 4: {
      const other = pick(token.length);
      return token.slice(0, at) + token.slice(other) + token.slice(at, other);
    }
    default:
      return flipBit(token, pick);
  }
}

// A bit of the nonce, the ciphertext or the tag itself, in a token that is otherwise well formed.
function flipBit(token: string, pick: (max: number) => number): string {
  const [format, keyId, nonce = "", bytes = ""] = token.split(".");
  const parts = [Buffer.from(nonce, "base64url"), Buffer.from(bytes, "base64url")];
  const part = parts[pick(2)] ?? Buffer.alloc(1);
  const at = pick(part.length);
  part[at] = (part[at] ?? 0) ^ (1 << pick(8));
  return [format, keyId, ...parts.map((one) => one.toString("base64url"))].join(".");
}

test.each([undefined, null, 1, "text", {}, { $sealed: 1 }, { $sealed: "" }, { $sealed: "1..." }, []])(
  "SEC-42: %j is no sealed value",
  (value) => {
    const sealer = new FieldCipher(key(), { purpose: "message", id: "m1" });
    expect(outcome(() => sealer.decrypt(value, ["email"]))).toBe("PRIVACY_SEAL_BROKEN");
  },
);

test("C-13: nonces do not repeat within many values of one message", () => {
  const sealer = new FieldCipher(key(), { purpose: "message", id: "m1" });
  const nonces = Array.from({ length: 20_000 }, (_, n) => sealer.encrypt(1, [n]).$sealed.split(".")[2]);
  expect(new Set(nonces).size).toBe(20_000);
});
