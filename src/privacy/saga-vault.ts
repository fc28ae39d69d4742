import type { Encrypted } from "../message/index.ts";
import type { Queryable } from "../storage/index.ts";
import type { PrivacyEngine } from "./engine.ts";
import type { DataKey } from "./key-cache.ts";
import { decryptionFailed } from "./decryption-failed.ts";
import { parseToken } from "./encrypted-token.ts";
import { FieldCipher } from "./field-cipher.ts";

type FieldPath = readonly (string | number)[];

/** Seals and opens texts under the key of one person. */
interface TextCipher {
  readonly subject: string;
  encrypt(text: string, of: string, place: FieldPath): Encrypted;
  decrypt(sealed: unknown, of: string, place: FieldPath): string;
}

/** What sagas seal their state with. */
export function createSagaVault({ keys, index }: PrivacyEngine) {
  return {
    forPerson: async (subject: string, tx: Queryable): Promise<TextCipher> =>
      createTextCipher(await keys.forSealing(index.subject(subject), tx)),
    find: async ({ $sealed }: Encrypted, tx?: Queryable): Promise<TextCipher | "erased" | "sealed"> => {
      const keyId = parseToken($sealed)?.keyId;
      if (keyId === undefined) throw decryptionFailed();
      const key = await keys.find(keyId, tx);
      return key === "unknown" ? "sealed" : key === "erased" ? "erased" : createTextCipher(key);
    },
  };
}

function createTextCipher(key: DataKey): TextCipher {
  const cipherFor = (of: string): FieldCipher => new FieldCipher(key, { purpose: "saga", id: of });
  return {
    subject: key.subject,
    encrypt: (text, of, place) => cipherFor(of).encryptText(text, place),
    decrypt: (sealed, of, place) => cipherFor(of).decryptText(sealed, place),
  };
}
