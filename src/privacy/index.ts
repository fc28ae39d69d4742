// Personal data: fields encrypted under keys of their data subject, the keys and their wrapping, and the erasure of a
// subject by destroying its keys, which makes every copy of the data unreadable.
export type { PrivacyOptions, PrivacySettings, OptionalActionReason, ActionReason } from "./options.ts";
export { readPrivacySettings, readKeyRingFromEnvironment } from "./options.ts";
export { attachmentVault, createSagaVault } from "./vaults.ts";
export {
  KeyRing,
  keyRing,
  keyRingFile,
  type KeyRingOptions,
  type KeyWrapper,
  type WrappedKey,
} from "./key-ring.ts";
export { keysMissing, MessageCipher, withoutKeys, type ReplyCipher } from "./message-cipher.ts";
export { createPrivacyEngine, readPrivacyStatus, type PrivacyEngine, type PrivacyStatus } from "./engine.ts";
export { endErasedSaga, erase, type EraseOptions, type ErasureReport, type LiveSaga } from "./erase.ts";
export { hold, reapply, release, type HoldOptions, type ReapplyResult, type Remains } from "./erase.ts";
export { listErasures, SubjectErased, type ErasedSubject, type Erasure } from "./erasure-log.ts";
export { PersonalTypes } from "./personal-types.ts";
export { exportSubject, type ExportedLine } from "./export-subject.ts";
export { rewrap, type RewrapOptions, type RewrapResult } from "./subject-keys.ts";
export { scrub, sweepAll, Sweeper, type Eraser, type ScrubResult } from "./sweep.ts";
export {
  findErasedPaths,
  findFieldPaths,
  findEncryptedPaths,
  valueAt,
  type FieldPath,
} from "./field-paths.ts";
export { parseEncryptedHeader } from "./encrypted-format.ts";
