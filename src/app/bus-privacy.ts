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

/** Whose keys another process destroyed, if that is what was heard. */
export function parseErasureNotice(payload: string): string | undefined {
  return payload.startsWith(PREFIX) ? payload.slice(PREFIX.length) : undefined;
}

/** Data about persons: finding them without naming them, giving them out, holding and erasing them. */
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
    /** A name for the value that tells nothing without the key: for message keys, and for finding. */
    blindIndex: (value: string, purpose: string): string =>
      requireEngine().index.compute(text("value", value, { max: 65_536 }), text("purpose", purpose)),
    /** Destroys the keys of a person: every copy of what was sealed for them becomes unreadable, wherever it is. */
    erase: async (subject: string, options: EraseOptions) =>
      explainFailure(erase(createEraser(parts, requireEngine()), subject, options)),
    /** Ends a saga that was parked because its person was erased. False when it is none of these. */
    endSaga: async (id: string, options: ActionReason) =>
      explainFailure(endErasedSaga(requireEngine(), id, options)),
    /** Everything that is held about a person, opened, one by one. That it was handed out is in the audit log. */
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
    /** Keeps a person from being erased. False when they are held already. */
    hold: async (subject: string, options: HoldOptions) =>
      explainFailure(hold(requireEngine(), subject, options)),
    /** Ends the hold. False when there is none. */
    release: async (subject: string, options: HoldOptions) =>
      explainFailure(release(requireEngine(), subject, options)),
    /** Wraps every data key with the current key of the ring. */
    rewrap: async (options?: RewrapOptions) => explainFailure(rewrap(requireEngine(), options)),
    /** The erasure log, oldest first: keep a copy apart from the backups of the database. */
    erasures: () => explainEachFailure(listErasures(requireEngine())),
    /** After a restore: destroys again what the backup brought back. */
    reapply: async (list?: Parameters<typeof reapply>[1], by?: OptionalActionReason) =>
      explainFailure(reapply(requireEngine(), list, by)),
    /** Goes on with erasures that are not swept; a running worker does it by itself. Resolves with how many are left. */
    sweep: async () => explainFailure(sweepAll(createEraser(parts, requireEngine()))),
    /** Removes texts about messages that were sealed with these keys, for services that heard of an erasure. */
    scrub: async (keyIds: readonly string[]) => explainFailure(scrub(requireEngine(), keyIds)),
    status: async () => explainFailure(readPrivacyStatus(requireEngine())),
  };
}

/** Erasing with the outbox of this bus. */
export function createEraser({ database, scope, channel }: Parts, engine: PrivacyEngine): Eraser {
  return {
    engine,
    transaction: async (work) => {
      const tx = await database.begin();
      const publishing = scope(tx);
      try {
        const result = await work(tx, (told) => publishing.publish(SubjectErased, told));
        publishing.handleCommit(await tx.commit(publishing.lastStatements()));
        return result;
      } catch (error) {
        await tx.rollback();
        throw error;
      }
    },
    // Only a hint: whoever does not hear it forgets the key when its time is over.
    announce: (subject) => void notify(database, channel, PREFIX + subject).catch(() => undefined),
  };
}
