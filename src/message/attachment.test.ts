import { expect, test } from "vitest";
import {
  asAttachment,
  attachment,
  type Attachment,
  decryptedSize,
  encryptedSize,
  findAttachments,
} from "./attachment.ts";

const clear = {
  store: "s3",
  key: `${"0f".repeat(6)}/2026-11-16/${"9c".repeat(16)}`,
  bytes: 65_552 + 17,
  sha256: "ab".repeat(32),
  contentType: "image/png",
};
const sealed = { keyId: "k".repeat(22), salt: `${"s".repeat(21)}A`, plainBytes: 65_537 };
const withSeal = (seal: unknown): unknown => ({ $attachment: { ...clear, sealed: seal } });

test("the schema accepts plain and encrypted attachments unchanged", async () => {
  for (const value of [{ $attachment: clear }, { $attachment: { ...clear, sealed } }]) {
    expect(await attachment()["~standard"].validate(value)).toEqual({ value });
    expect(findAttachments(JSON.stringify({ deep: [value] }))).toEqual([value] satisfies Attachment[]);
  }
});

test.each([
  ["nothing", undefined],
  ["null", null],
  ["true", true],
  ["a list", [sealed.keyId, sealed.salt, sealed.plainBytes]],
  ["no field", {}],
  ["a field more", { ...sealed, subject: "c-17" }],
  ["no length", { keyId: sealed.keyId, salt: sealed.salt }],
  ["a short key id", { ...sealed, keyId: "k" }],
  ["a key id with a line end", { ...sealed, keyId: `${"k".repeat(22)}\n` }],
  ["a key id that is a list", { ...sealed, keyId: [sealed.keyId] }],
  ["another spelling of a salt", { ...sealed, salt: `${"s".repeat(21)}B` }],
  ["a long salt", { ...sealed, salt: `${"s".repeat(42)}A` }],
  ["a length that does not fit", { ...sealed, plainBytes: 65_536 }],
  ["a length as text", { ...sealed, plainBytes: "65537" }],
  ["half a byte", { ...sealed, plainBytes: 65_536.5 }],
  ["a negative length", { ...sealed, plainBytes: -1 }],
])("with %s as its seal it is no attachment, and none in clear either", (_, seal) => {
  expect(asAttachment(withSeal(sealed))).toBeDefined();
  expect(asAttachment(withSeal(seal))).toBeUndefined();
});

test("encryptedSize and decryptedSize are inverse functions", () => {
  const lengths = [0, 1, 65_535, 65_536, 65_537, 131_072, 131_073, 5_368_709_120];
  expect(lengths.map(encryptedSize).map(decryptedSize)).toEqual(lengths);
  expect([0, 65_536, 65_537].map(encryptedSize)).toEqual([16, 65_552, 65_569]);
});
