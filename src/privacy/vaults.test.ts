import { randomBytes } from "node:crypto";
import { buffer } from "node:stream/consumers";
import { expect, test } from "vitest";
import { attachmentVault } from "./vaults.ts";
import type { PrivacyEngine } from "./engine.ts";
import type { DataKey } from "./key-cache.ts";
import type { FoundKey } from "./subject-keys.ts";

async function* pieces(...bytes: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* bytes;
}

const KEY_ID = "k".repeat(22);
const keyOf = (keyId: string): DataKey => ({ keyId, subject: "s", bytes: randomBytes(32) });

/** A vault with these keys; the first belongs to every subject. */
function vaultWith(found: Readonly<Record<string, FoundKey>>) {
  const keys = {
    getEncryptionKey: () => Promise.resolve(Object.values(found)[0]),
    find: (keyId: string) => Promise.resolve(found[keyId] ?? "unknown"),
  };
  const index = { subject: (subject: string) => `index of ${subject}` };
  return attachmentVault({ keys, index } as unknown as PrivacyEngine);
}

async function sealedBy(vault: ReturnType<typeof vaultWith>) {
  const sealing = await vault.encryptionFor("c-17");
  return { salt: sealing.salt, stored: await buffer(sealing.seal(pieces(Buffer.from("a scan")))) };
}

test("an attachment is decrypted with its own key and salt only", async () => {
  const key = keyOf(KEY_ID);
  const vault = vaultWith({ [KEY_ID]: key, z: { ...key, keyId: "z" } });
  const other = vaultWith({ [KEY_ID]: keyOf(KEY_ID) });
  const { salt, stored } = await sealedBy(vault);
  const opened = async (by: typeof vault, seal: { keyId: string; salt: string }): Promise<string> => {
    const open = await by.decryptionFor(seal);
    return buffer(open(pieces(stored))).then(String, (error: { code: string }) => error.code);
  };
  expect(await opened(vault, { keyId: KEY_ID, salt })).toBe("a scan");
  expect(await opened(other, { keyId: KEY_ID, salt })).toBe("PRIVACY_SEAL_BROKEN");
  expect(await opened(vault, { keyId: KEY_ID, salt: "A".repeat(22) })).toBe("PRIVACY_SEAL_BROKEN");
  // Equal key bytes under another id: the id is bound too.
  expect(await opened(vault, { keyId: "z", salt })).toBe("PRIVACY_SEAL_BROKEN");
});

test("equal bytes are encrypted differently each time", async () => {
  const vault = vaultWith({ [KEY_ID]: keyOf(KEY_ID) });
  const [one, two] = [await sealedBy(vault), await sealedBy(vault)];
  expect(one.salt).toMatch(/^[A-Za-z0-9_-]{21}[AQgw]$/);
  expect([one.salt === two.salt, one.stored.equals(two.stored)]).toEqual([false, false]);
});

test("an erased subject and a missing key are reported before any byte is read", async () => {
  const vault = vaultWith({ [KEY_ID]: "erased" });
  const seal = { keyId: KEY_ID, salt: "A".repeat(22) };
  await expect(vault.decryptionFor(seal)).rejects.toMatchObject({ code: "PRIVACY_ERASED" });
  const unknown = { ...seal, keyId: "u".repeat(22) };
  await expect(vault.decryptionFor(unknown)).rejects.toMatchObject({ code: "PRIVACY_SEALED" });
  await expect(attachmentVault(undefined).decryptionFor(seal)).rejects.toMatchObject({
    code: "PRIVACY_SEALED",
  });
});

test.each([undefined, null, "", "  ", 17, "x".repeat(1_025)])(
  "%j is not a valid subject",
  async (subject) => {
    const vault = vaultWith({ [KEY_ID]: keyOf(KEY_ID) });
    await expect(vault.encryptionFor(subject)).rejects.toMatchObject({ code: "PRIVACY_SUBJECT_INVALID" });
  },
);

test("without keys encryption fails, and the error says what to do", async () => {
  await expect(attachmentVault(undefined).encryptionFor("c-17")).rejects.toMatchObject({
    code: "PRIVACY_KEYS_MISSING",
    message: expect.stringContaining("SAGABOX_KEY_RING_FILE"),
  });
});
