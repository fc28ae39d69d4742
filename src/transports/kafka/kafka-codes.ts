/** Kafka's error codes that the transport handles. */
export const codes = {
  none: 0,
  offsetOutOfRange: 1,
  corruptMessage: 2,
  unknownTopic: 3,
  leaderNotAvailable: 5,
  notLeader: 6,
  requestTimedOut: 7,
  messageTooLarge: 10,
  networkException: 13,
  coordinatorLoading: 14,
  coordinatorNotAvailable: 15,
  notCoordinator: 16,
  invalidTopic: 17,
  recordListTooLarge: 18,
  notEnoughReplicas: 19,
  notEnoughReplicasAfterAppend: 20,
  unknownMember: 25,
  topicDenied: 29,
  groupDenied: 30,
  clusterDenied: 31,
  invalidTimestamp: 32,
  unsupportedVersion: 35,
  topicExists: 36,
  policyViolation: 44,
  outOfOrderSequence: 45,
  duplicateSequence: 46,
  invalidProducerEpoch: 47,
  storageError: 56,
  unknownProducer: 59,
  groupNotFound: 69,
  fencedLeaderEpoch: 74,
  unknownLeaderEpoch: 75,
  invalidRecord: 87,
  throttled: 89,
  unknownTopicId: 100,
  fencedMember: 110,
  staleMember: 113,
} as const;

const names = new Map<number, string>(Object.entries(codes).map(([name, code]) => [code, name]));

/** Formats a code for error messages: "not enough replicas (19)". */
export function codeText(code: number): string {
  const name = names.get(code) ?? "error";
  return `${name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)} (${code})`;
}

/** How to handle a batch that the broker did not accept. */
export type ProduceFailure =
  "retry" | "retry, maybe stored" | "too large" | "invalid" | "denied" | "new identity";

/** Codes that say the partition's leader has moved or was never known here. */
const staleViewCodes: ReadonlySet<number> = new Set<number>([
  codes.unknownTopic,
  codes.unknownTopicId,
  codes.notLeader,
  codes.leaderNotAvailable,
  codes.fencedLeaderEpoch,
  codes.unknownLeaderEpoch,
]);
const retryCodes: ReadonlySet<number> = new Set<number>([
  ...staleViewCodes,
  codes.corruptMessage,
  codes.notEnoughReplicas,
  codes.storageError,
  codes.throttled,
]);
const maybeStoredCodes: ReadonlySet<number> = new Set<number>([
  codes.requestTimedOut,
  codes.networkException,
  codes.notEnoughReplicasAfterAppend,
]);
const deniedCodes: ReadonlySet<number> = new Set([codes.topicDenied, codes.clusterDenied]);
const lostIdentityCodes: ReadonlySet<number> = new Set<number>([
  codes.outOfOrderSequence,
  codes.invalidProducerEpoch,
  codes.unknownProducer,
]);

export function classifyProduceCode(code: number): ProduceFailure {
  if (retryCodes.has(code)) return "retry";
  if (maybeStoredCodes.has(code)) return "retry, maybe stored";
  if (code === codes.messageTooLarge || code === codes.recordListTooLarge) return "too large";
  if (deniedCodes.has(code)) return "denied";
  return lostIdentityCodes.has(code) ? "new identity" : "invalid";
}

/** Whether the partition's leader must be looked up again. */
export function isStaleView(code: number): boolean {
  return staleViewCodes.has(code);
}

/** Whether the group's coordinator must be looked up again. */
export function isCoordinatorGone(code: number): boolean {
  return (
    code === codes.coordinatorLoading ||
    code === codes.coordinatorNotAvailable ||
    code === codes.notCoordinator
  );
}
