import {
  endErasedSaga,
  erase,
  erasures,
  exportSubject,
  hold,
  keysMissing,
  privacyStatus,
  reapply,
  release,
  rewrap,
  scrub,
  SubjectErased,
  sweepAll,
  type Acted,
  type Because,
  type EraseOptions,
  type Eraser,
  type HoldOptions,
  type PrivacyEngine,
  type RewrapOptions,
} from "../privacy/index.ts";
import { text } from "../options/index.ts";
import type { Json } from "../message/index.ts";
import { explainPostgresError, notify, quotedSchema } from "../storage/index.ts";
import type { BusSagas } from "./bus-sagas.ts";
import type { Parts } from "./parts.ts";

export type BusPrivacy = ReturnType<typeof busPrivacy>;

const PREFIX = "privacy:";

/** Whose keys another process destroyed, if that is what was heard. */
export function heardErasure(payload: string): string | undefined {
  return payload.startsWith(PREFIX) ? payload.slice(PREFIX.length) : undefined;
}

/** Data about persons: finding them without naming them, giving them out, holding and erasing them. */
export function busPrivacy(parts: Parts, { show }: Pick<BusSagas, "show">) {
  const engine = (): PrivacyEngine => {
    if (parts.privacy === undefined) throw keysMissing();
    return parts.privacy;
  };
  const explanation = (error: unknown): unknown =>
    explainPostgresError(error, quotedSchema(parts.settings.schema), "privacy");
  const explained = <T>(work: Promise<T>): Promise<T> =>
    work.catch((error: unknown) => {
      throw explanation(error);
    });
  const explainedEach = async function* <T>(lines: AsyncIterable<T>): AsyncGenerator<T, void, undefined> {
    try {
      yield* lines;
    } catch (error) {
      throw explanation(error);
    }
  };
  return {
    /** A name for the value that tells nothing without the key: for message keys, and for finding. */
    blindIndex: (value: string, purpose: string): string =>
      engine().index.of(text("value", value, { max: 65_536 }), text("purpose", purpose)),
    /** Destroys the keys of a person: every copy of what was sealed for them becomes unreadable, wherever it is. */
    erase: async (subject: string, options: EraseOptions) =>
      explained(erase(eraser(parts, engine()), subject, options)),
    /** Ends a saga that was parked because its person was erased. False when it is none of these. */
    endSaga: async (id: string, options: Because) => explained(endErasedSaga(engine(), id, options)),
    /** Everything that is held about a person, opened, one by one. That it was handed out is in the audit log. */
    export: (subject: string, because: Because) =>
      explainedEach(
        exportSubject(
          {
            engine: engine(),
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
    hold: async (subject: string, options: HoldOptions) => explained(hold(engine(), subject, options)),
    /** Ends the hold. False when there is none. */
    release: async (subject: string, options: HoldOptions) => explained(release(engine(), subject, options)),
    /** Wraps every data key with the current key of the ring. */
    rewrap: async (options?: RewrapOptions) => explained(rewrap(engine(), options)),
    /** The erasure log, oldest first: keep a copy apart from the backups of the database. */
    erasures: () => explainedEach(erasures(engine())),
    /** After a restore: destroys again what the backup brought back. */
    reapply: async (list?: Parameters<typeof reapply>[1], by?: Acted) =>
      explained(reapply(engine(), list, by)),
    /** Goes on with erasures that are not swept; a running worker does it by itself. Resolves with how many are left. */
    sweep: async () => explained(sweepAll(eraser(parts, engine()))),
    /** Removes texts about messages that were sealed with these keys, for services that heard of an erasure. */
    scrub: async (keyIds: readonly string[]) => explained(scrub(engine(), keyIds)),
    status: async () => explained(privacyStatus(engine())),
  };
}

/** Erasing with the outbox of this bus. */
export function eraser({ database, scope, channel }: Parts, engine: PrivacyEngine): Eraser {
  return {
    engine,
    transaction: async (work) => {
      const tx = await database.begin();
      const publishing = scope(tx);
      try {
        const result = await work(tx, (told) => publishing.publish(SubjectErased, told));
        publishing.committed(await tx.commit(publishing.last()));
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
