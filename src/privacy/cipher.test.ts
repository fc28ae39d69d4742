import { expect, test } from "vitest";
import { decrypt, deriveKey, encrypt } from "./cipher.ts";

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(" ", ""), "hex");

test("SEC-39: AES-256-GCM as in test case 14 of the specification of GCM", () => {
  const sealed = encrypt({ key: Buffer.alloc(32), nonce: Buffer.alloc(12), bound: "" }, Buffer.alloc(16));
  expect(sealed.toString("hex")).toBe("cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919");
});

test("SEC-39: AES-256-GCM with more than one block, as in test case 15", () => {
  const key = hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
  const nonce = hex("cafebabefacedbaddecaf888");
  const plain = hex(
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72" +
      "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
  );
  const sealed = encrypt({ key, nonce, bound: "" }, plain);
  expect(sealed.subarray(-16).toString("hex")).toBe("b094dac5d93471bdec1a502270e3cc6c");
  expect(decrypt({ key, nonce, bound: "" }, sealed)).toEqual(plain);
});

test("SEC-39: HKDF with SHA-256 as in test case 3 of RFC 5869, cut to the length of a key", () => {
  expect(deriveKey(Buffer.alloc(22, 0x0b), "", "").toString("hex")).toBe(
    "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d",
  );
});

test.each(["", "x".repeat(1_000_000)])("decryption returns the encrypted bytes of any length", (text) => {
  const with_ = { key: Buffer.alloc(32, 7), nonce: Buffer.alloc(12, 9), bound: "a" };
  expect(decrypt(with_, encrypt(with_, Buffer.from(text)))?.toString()).toBe(text);
  expect(decrypt({ ...with_, bound: "b" }, encrypt(with_, Buffer.from(text)))).toBeUndefined();
});
