import type { AuditEntry } from "../audit/index.ts";
import { SagaboxError } from "../errors/index.ts";
import {
  option,
  Problems,
  readOptions,
  text,
  type OptionsFrom,
  type SettingsFrom,
} from "../options/index.ts";
import { KEY_BYTES } from "./cipher.ts";
import { KeyRing, keyRingFile, type KeyWrapper, parseKeyRing } from "./key-ring.ts";

export const privacyOptions = {
  /** A key ring, or a wrapper such as a key management service. Default: SAGABOX_KEY_RING or SAGABOX_KEY_RING_FILE. */
  keys: option.value<KeyRing | KeyWrapper>({ accepts: "KeyRing | KeyWrapper" }),
  /** The key of blind indexes, 32 bytes. Required if `keys` is not a key ring. */
  indexKey: option.value<Uint8Array>({ accepts: "Uint8Array" }),
  /**
   * How long an unwrapped data key stays in memory, and therefore readable after an erasure in another process. Default
   * "30s".
   */
  cacheTtl: option.duration({ default: "30s", max: 60_000 }),
  /** The most data keys in memory. Default 10,000. */
  cacheSize: option.number({ default: 10_000, min: 1, max: 1_000_000 }),
  /** How long `keys` may take to wrap or unwrap one data key. Default "5s". */
  keyTimeout: option.duration({ default: "5s", min: 1, max: 60_000 }),
};

/** Options of the encryption of personal data. */
export interface PrivacyOptions extends OptionsFrom<typeof privacyOptions> {}

export interface PrivacySettings extends Pick<
  SettingsFrom<typeof privacyOptions>,
  "cacheTtlMs" | "cacheSize" | "keyTimeoutMs"
> {
  /** Undefined if no keys are configured, so that nothing can be encrypted. */
  readonly keys: { readonly wrapper: KeyWrapper; readonly indexKey: () => Uint8Array } | undefined;
}

/** The values of SAGABOX_KEY_RING (`text`) and SAGABOX_KEY_RING_FILE (`file`). */
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
  throw invalid("privacy.indexKey is missing. Give 32 bytes besides `keys`, and never change them.");
}

/** Creates the key ring of the environment. Undefined if neither variable is set. */
export function readKeyRingFromEnvironment({ text, file }: KeyRingEnvironment): KeyRing | undefined {
  if (file !== undefined && file !== "") return keyRingFile(file);
  if (text === undefined || text === "") return undefined;
  const keys = parseKeyRing(text);
  return new KeyRing(() => keys);
}

function invalid(message: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", message);
}

/** The reason and the actor of an operation, for the audit log. */
export interface ActionReason {
  /** The reason, such as the number of the request. Do not write the name of the subject here. */
  readonly reason: string;
  /** The person or system that requests the operation. Default "unknown". */
  readonly actor?: string;
}

/** The reason and the actor of an operation that concerns no single subject. */
export type OptionalActionReason = Partial<ActionReason>;

export function checkActionReason({ reason, actor = "unknown" }: ActionReason): Required<ActionReason> {
  return { reason: text("reason", reason, { max: 1_000 }), actor: text("actor", actor) };
}

/** An entry of the audit log that names the data subject by its keyed hash. */
export function subjectAuditEntry(action: string, subject: string, by: Required<ActionReason>): AuditEntry {
  return { ...by, action, target: { kind: "person", id: subject } };
}

export function keysAuditEntry(
  action: string,
  { reason, actor = "unknown" }: OptionalActionReason,
): AuditEntry {
  return {
    action,
    actor: text("actor", actor),
    reason: reason === undefined ? null : text("reason", reason, { max: 1_000 }),
    target: { kind: "keys" },
  };
}
