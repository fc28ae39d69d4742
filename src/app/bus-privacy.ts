import {
  endErasedSaga,
  erase,
  listErasures,
  exportSubject,
  hold,
  keysMissing,
  readPrivacyStatus,
  reapply,
  release,
  rewrap,
  scrub,
  SubjectErased,
  sweepAll,
  type OptionalActionReason,
  type ActionReason,
  type EraseOptions,
  type Eraser,
  type HoldOptions,
  type PrivacyEngine,
  type RewrapOptions,
} from "../privacy/index.ts";
import { text } from "../options/index.ts";
import type { Json } from "../message/index.ts";
import { explainPostgresError, notify, quoteSchema } from "../storage/index.ts";
import type { BusSagas } from "./bus-sagas.ts";
import type { Parts } from "./parts.ts";

export type BusPrivacy = ReturnType<typeof busPrivacy>;

const PREFIX = "privacy:";

/** Returns the subject whose keys another process destroyed, or undefined if the notification is of another kind. */
export function parseErasureNotice(payload: string): string | undefined {
  return payload.startsWith(PREFIX) ? payload.slice(PREFIX.length) : undefined;
}

/**
 * The operations on personal data: blind indexes, export, legal holds and erasure. Each throws PRIVACY_KEYS_MISSING if the
 * bus has no key ring.
 */
export function busPrivacy(parts: Parts, { show }: Pick<BusSagas, "show">) {
  const requireEngine = (): PrivacyEngine => {
    if (parts.privacy === undefined) throw keysMissing();
    return parts.privacy;
  };
  const explainError = (error: unknown): unknown =>
    explainPostgresError(error, quoteSchema(parts.settings.schema), "privacy");
  const explainFailure = <T>(work: Promise<T>): Promise<T> =>
    work.catch((error: unknown) => {
      throw explainError(error);
    });
  const explainEachFailure = async function* <T>(
    lines: AsyncIterable<T>,
  ): AsyncGenerator<T, void, undefined> {
    try {
      yield* lines;
    } catch (error) {
      throw explainError(error);
    }
  };
  return {
    /** Computes a keyed hash of a value, for message keys and lookups that must not reveal the value. */
    blindIndex: (value: string, purpose: string): string =>
      requireEngine().index.compute(text("value", value, { max: 65_536 }), text("purpose", purpose)),
    /** Destroys the data keys of a data subject, which makes every copy of the subject's encrypted fields unreadable. */
    erase: async (subject: string, options: EraseOptions) =>
      explainFailure(erase(createEraser(parts, requireEngine()), subject, options)),
    /** Ends a saga that stopped because its subject was erased. Resolves with false for any other saga. */
    endSaga: async (id: string, options: ActionReason) =>
      explainFailure(endErasedSaga(requireEngine(), id, options)),
    /** Streams all data stored about a subject, decrypted. The export is recorded in the audit log. */
    export: (subject: string, because: ActionReason) =>
      explainEachFailure(
        exportSubject(
          {
            engine: requireEngine(),
            open: async (message) => parts.inbox.unpack(SubjectErased, message),
            openSaga: async ({ id, status }) => {
              const { input, steps } = await show(id);
              return JSON.parse(JSON.stringify({ status, input, steps })) as Json;
            },
          },
          subject,
          because,
        ),
      ),
    /** Places a legal hold, which blocks erasure of the subject. Resolves with false if the hold exists already. */
    hold: async (subject: string, options: HoldOptions) =>
      explainFailure(hold(requireEngine(), subject, options)),
    /** Lifts a legal hold. Resolves with false if there is no hold. */
    release: async (subject: string, options: HoldOptions) =>
      explainFailure(release(requireEngine(), subject, options)),
    /** Re-encrypts every data key with the current key of the key ring. */
    rewrap: async (options?: RewrapOptions) => explainFailure(rewrap(requireEngine(), options)),
    /** Streams the erasure log, oldest first. Keep a copy outside the database backups. */
    erasures: () => explainEachFailure(listErasures(requireEngine())),
    /** Repeats erasures after a restore, for keys that the backup brought back. */
    reapply: async (list?: Parameters<typeof reapply>[1], by?: OptionalActionReason) =>
      explainFailure(reapply(requireEngine(), list, by)),
    /** Completes unfinished erasures and resolves with how many remain. A running worker does this on its own. */
    sweep: async () => explainFailure(sweepAll(createEraser(parts, requireEngine()))),
    /** Removes error texts about messages encrypted with these keys. For services that receive `SubjectErased`. */
    scrub: async (keyIds: readonly string[]) => explainFailure(scrub(requireEngine(), keyIds)),
    /** Returns the state of the key ring, the data keys and the erasures. */
    status: async () => explainFailure(readPrivacyStatus(requireEngine())),
  };
}

/** Creates an eraser that publishes `SubjectErased` through the outbox of this bus. */
export function createEraser({ database, scope, channel }: Parts, engine: PrivacyEngine): Eraser {
  return {
    engine,
    transaction: async (work) => {
      const tx = await database.begin();
      const publishing = scope(tx);
      try {
        const result = await work(tx, (erasure) => publishing.publish(SubjectErased, erasure));
        publishing.handleCommit(await tx.commit(publishing.lastStatements()));
        return result;
      } catch (error) {
        await tx.rollback();
        throw error;
      }
    },
    // Best effort: a process that misses the notification drops the key when its cache entry expires.
    announce: (subject) => void notify(database, channel, PREFIX + subject).catch(() => undefined),
  };
}
