import { SagaboxError } from "../errors/index.ts";
import { option, Problems, readOptions, type OptionsFrom, type SettingsFrom } from "../options/index.ts";
import { KEY_BYTES } from "./cipher.ts";
import { KeyRing } from "./key-ring.ts";
import { keyRingFile } from "./key-ring-file.ts";
import { parseKeyRing } from "./key-ring-text.ts";
import type { KeyWrapper } from "./key-wrapper.ts";

export const privacyOptions = {
  /** A key ring, or a client of a key service that wraps keys. Default: SAGABOX_KEY_RING or SAGABOX_KEY_RING_FILE. */
  keys: option.value<KeyRing | KeyWrapper>({ accepts: "KeyRing | KeyWrapper" }),
  /** The key of blind indexes, 32 bytes. Required unless `keys` is a key ring. */
  indexKey: option.value<Uint8Array>({ accepts: "Uint8Array" }),
  /** How long a decrypted data key is cached, and so readable after an erasure in another process. Default "30s". */
  cacheTtl: option.duration({ default: "30s", max: 60_000 }),
  /** Maximum number of cached data keys. Default 10,000. */
  cacheSize: option.number({ default: 10_000, min: 1, max: 1_000_000 }),
  /** Timeout of one call of `keys` that wraps or unwraps a data key. Default "5s". */
  keyTimeout: option.duration({ default: "5s", min: 1, max: 60_000 }),
};

/** Options of the encryption of personal data. */
export interface PrivacyOptions extends OptionsFrom<typeof privacyOptions> {}

export interface PrivacySettings extends Pick<
  SettingsFrom<typeof privacyOptions>,
  "cacheTtlMs" | "cacheSize" | "keyTimeoutMs"
> {
  /** Undefined if nothing can be encrypted. */
  readonly keys: { readonly wrapper: KeyWrapper; readonly indexKey: () => Uint8Array } | undefined;
}

/** The key ring variables of the environment. */
export interface KeyRingEnvironment {
  readonly text?: string | undefined;
  readonly file?: string | undefined;
}

export function readPrivacySettings(
  options: PrivacyOptions = {},
  around: KeyRingEnvironment = {},
): PrivacySettings {
  const problems = new Problems();
  const settings = problems.collect(() => readOptions("privacy", privacyOptions, options));
  const keys = problems.collect(() => readKeys(options, around));
  problems.throwIfAny("The options of privacy");
  const { cacheTtlMs, cacheSize, keyTimeoutMs } = settings as NonNullable<typeof settings>;
  return Object.freeze({ keys, cacheTtlMs, cacheSize, keyTimeoutMs });
}

function readKeys({ keys, indexKey }: PrivacyOptions, around: KeyRingEnvironment): PrivacySettings["keys"] {
  const wrapper = keys ?? readKeyRingFromEnvironment(around);
  if (wrapper === undefined) return undefined;
  if (indexKey !== undefined) {
    if (!(indexKey instanceof Uint8Array) || indexKey.length !== KEY_BYTES)
      throw invalid("privacy.indexKey must be 32 bytes.");
    return { wrapper, indexKey: () => indexKey };
  }
  if (wrapper instanceof KeyRing) return { wrapper, indexKey: () => wrapper.indexKey };
  if (typeof wrapper.wrap !== "function" || typeof wrapper.unwrap !== "function") {
    throw invalid("privacy.keys must be a key ring from keyRing(), or a KeyWrapper.");
  }
  throw invalid("privacy.indexKey is missing: pass 32 bytes alongside `keys`, and never change them.");
}

/** Returns the key ring of the environment, or undefined if none is set. */
export function readKeyRingFromEnvironment({ text, file }: KeyRingEnvironment): KeyRing | undefined {
  if (file !== undefined && file !== "") return keyRingFile(file);
  if (text === undefined || text === "") return undefined;
  const keys = parseKeyRing(text);
  return new KeyRing(() => keys);
}

function invalid(message: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", message);
}
