// Data about persons: which fields of a message are sealed under whose key, the keys themselves and what wraps them, and
// the erasure of a person by destroying their keys, so that every copy ever made becomes unreadable, wherever it is.
export type { PrivacyOptions, PrivacySettings } from "./options.ts";
export { privacySettings, ringFrom } from "./options.ts";
export type { Acted, Because } from "./because.ts";
export { attachmentVault } from "./attachment-vault.ts";
export { KeyRing, keyRing, type KeyRingOptions } from "./key-ring.ts";
export { keyRingFile } from "./key-ring-file.ts";
export type { KeyWrapper, WrappedKey } from "./key-wrapper.ts";
export { keysMissing, MessageSeal, withoutKeys, type ReplySeal } from "./message-seal.ts";
export { privacyEngine, type PrivacyEngine } from "./engine.ts";
export { endErasedSaga, erase, type EraseOptions, type ErasureReport, type LiveSaga } from "./erase.ts";
export type { Eraser } from "./eraser.ts";
export { erasures, type Erasure } from "./erasure-log.ts";
export { exportSubject, type ExportedLine } from "./export-subject.ts";
export { hold, release, type HoldOptions } from "./legal-hold.ts";
export { reapply, type Reapplied } from "./reapply.ts";
export type { Remains } from "./remains.ts";
export { rewrap, type RewrapOptions, type RewrapResult } from "./rewrap.ts";
export { sagaVault } from "./saga-vault.ts";
export { privacyStatus, type PrivacyStatus } from "./status.ts";
export { SubjectErased, type ErasedSubject } from "./subject-erased.ts";
export { scrub, sweepAll, type Scrubbed } from "./sweep.ts";
export { Sweeper } from "./sweeper.ts";
export { erasedIn, placesOf, sealedIn, valueAt, type Place } from "./places.ts";
export { parseSealedHeader } from "./sealed-header.ts";
