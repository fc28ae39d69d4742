// Data about persons: which fields of a message are sealed under whose key, the keys themselves and what wraps them, and
// the erasure of a person by destroying their keys, so that every copy ever made becomes unreadable, wherever it is.
export type { PrivacyOptions, PrivacySettings } from "./options.ts";
export { readPrivacySettings, readKeyRingFromEnvironment } from "./options.ts";
export type { OptionalActionReason, ActionReason } from "./action-reason.ts";
export { attachmentVault } from "./attachment-vault.ts";
export { KeyRing, keyRing, type KeyRingOptions } from "./key-ring.ts";
export { keyRingFile } from "./key-ring-file.ts";
export type { KeyWrapper, WrappedKey } from "./key-wrapper.ts";
export { keysMissing, MessageCipher, withoutKeys, type ReplyCipher } from "./message-cipher.ts";
export { createPrivacyEngine, type PrivacyEngine } from "./engine.ts";
export { endErasedSaga, erase, type EraseOptions, type ErasureReport, type LiveSaga } from "./erase.ts";
export type { Eraser } from "./eraser.ts";
export { listErasures, type Erasure } from "./erasure-log.ts";
export { exportSubject, type ExportedLine } from "./export-subject.ts";
export { hold, release, type HoldOptions } from "./legal-hold.ts";
export { reapply, type ReapplyResult } from "./reapply.ts";
export type { Remains } from "./remains.ts";
export { rewrap, type RewrapOptions, type RewrapResult } from "./rewrap.ts";
export { createSagaVault } from "./saga-vault.ts";
export { readPrivacyStatus, type PrivacyStatus } from "./status.ts";
export { SubjectErased, type ErasedSubject } from "./subject-erased.ts";
export { scrub, sweepAll, type ScrubResult } from "./sweep.ts";
export { Sweeper } from "./sweeper.ts";
export {
  findErasedPaths,
  findFieldPaths,
  findEncryptedPaths,
  valueAt,
  type FieldPath,
} from "./field-paths.ts";
export { parseEncryptedHeader } from "./encrypted-header.ts";
