// Data about persons: which fields of a message are sealed under whose key, the keys themselves and what wraps them, and
// the erasure of a person by destroying their keys, so that every copy ever made becomes unreadable, wherever it is.
export type { PrivacyOptions, PrivacySettings } from "./options.ts";
export { privacySettings } from "./options.ts";
export { KeyRing, keyRing, type KeyRingOptions } from "./key-ring.ts";
export { keyRingFile } from "./key-ring-file.ts";
export type { KeyWrapper, WrappedKey } from "./key-wrapper.ts";
export { MessageSeal, withoutKeys } from "./message-seal.ts";
export { privacyEngine, type PrivacyEngine } from "./engine.ts";
