import { SagaboxError } from "../errors/index.ts";
import { inPart, milliseconds, rejectUnknownKeys, wholeNumber, type Duration } from "../options/index.ts";
import { KEY_BYTES } from "./cipher.ts";
import { KeyRing } from "./key-ring.ts";
import { keyRingFile } from "./key-ring-file.ts";
import { parseKeyRing } from "./key-ring-text.ts";
import type { KeyWrapper } from "./key-wrapper.ts";

export interface PrivacyOptions {
  /** A key ring, or whatever wraps keys for you. Default: SAGABOX_KEY_RING or SAGABOX_KEY_RING_FILE. */
  readonly keys?: KeyRing | KeyWrapper;
  /** The key of blind indexes, 32 bytes; needed where `keys` is no key ring. */
  readonly indexKey?: Uint8Array;
  /** How long a data key is kept in clear, and so readable after an erasure in another process. At most "60s". Default "30s". */
  readonly cacheTtl?: Duration | number;
  /** How many data keys are kept at most. Default 10,000. */
  readonly cacheSize?: number;
  /** How long `keys` may take to wrap or unwrap one. Default "5s". */
  readonly keyTimeout?: Duration | number;
}

export interface PrivacySettings {
  /** Undefined where nothing can be sealed. */
  readonly keys: { readonly wrapper: KeyWrapper; readonly indexKey: () => Uint8Array } | undefined;
  readonly cacheTtlMs: number;
  readonly cacheSize: number;
  readonly wrapperMs: number;
}

/** What the environment says of the keys. */
export interface KeyRingEnvironment {
  readonly text?: string | undefined;
  readonly file?: string | undefined;
}

export function readPrivacySettings(
  options: PrivacyOptions = {},
  around: KeyRingEnvironment = {},
): PrivacySettings {
  rejectUnknownKeys("privacy", options, ["keys", "indexKey", "cacheTtl", "cacheSize", "keyTimeout"]);
  return Object.freeze({
    keys: inPart(() => readKeys(options, around), undefined),
    cacheTtlMs: milliseconds("privacy.cacheTtl", options.cacheTtl ?? "30s", { min: 0, max: 60_000 }),
    cacheSize: wholeNumber("privacy.cacheSize", options.cacheSize ?? 10_000, { min: 1, max: 1_000_000 }),
    wrapperMs: milliseconds("privacy.keyTimeout", options.keyTimeout ?? "5s", { min: 1, max: 60_000 }),
  });
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
    throw invalid("privacy.keys must be made by keyRing(), or be a KeyWrapper.");
  }
  throw invalid("privacy.indexKey is missing: give 32 bytes beside `keys`, and never change them.");
}

/** The ring that the environment gives, if it does. */
export function readKeyRingFromEnvironment({ text, file }: KeyRingEnvironment): KeyRing | undefined {
  if (file !== undefined && file !== "") return keyRingFile(file);
  if (text === undefined || text === "") return undefined;
  const keys = parseKeyRing(text);
  return new KeyRing(() => keys);
}

function invalid(message: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", message);
}
