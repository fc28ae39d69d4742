import { SagaboxError } from "../../errors/index.ts";
import { emptyState, type GroupState } from "./group-state.ts";
import type { Session } from "./link.ts";
import { isApiError } from "./streams.ts";

const wrongLastSequence = 10071;

export interface Versioned<T> {
  readonly value: T;
  /** Stream sequence of the record's last version; 0 if there is no record yet. */
  readonly revision: number;
}

/** A small JSON record under one subject, updated with compare-and-set on its revision. */
export class SharedRecord<T> {
  readonly #stream: string;
  readonly #subject: string;
  readonly #empty: T;

  constructor(stream: string, subject: string, empty: T) {
    this.#stream = stream;
    this.#subject = subject;
    this.#empty = empty;
  }

  async read({ jsm }: Session): Promise<Versioned<T>> {
    const found = await jsm.streams.getMessage(this.#stream, { last_by_subj: this.#subject });
    if (found === null) return { value: this.#empty, revision: 0 };
    try {
      return { value: found.json<T>(), revision: found.seq };
    } catch (cause) {
      throw new SagaboxError("ENVELOPE_INVALID", `The record ${this.#subject} is not readable.`, { cause });
    }
  }

  /** Returns false if another member has written a newer version. */
  async write({ js }: Session, value: T, revision: number): Promise<boolean> {
    try {
      await js.publish(this.#subject, JSON.stringify(value), {
        expect: { streamName: this.#stream, lastSubjectSequence: revision },
      });
      return true;
    } catch (error) {
      if (isApiError(error, wrongLastSequence)) return false;
      throw error;
    }
  }
}

export type GroupRecord = SharedRecord<GroupState>;

export function groupRecord(stream: string, subject: string): GroupRecord {
  return new SharedRecord(stream, subject, emptyState);
}
