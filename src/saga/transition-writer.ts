import { SagaboxError } from "../errors/index.ts";
import { yieldToEventLoop } from "../runtime/index.ts";
import type { Queryable, Statement } from "../storage/index.ts";
import { type Birth, insertParams, type LoadedInstance } from "./saga-store.ts";
import type { SagaStatements } from "./statements.ts";
import { toJsonText, type Transition } from "./transition.ts";

const MAX_BATCH_SIZE = 100;
/** Limits the text of a batch, so that large states are not saved together. */
const MAX_BATCH_CHARACTERS = 1_000_000;

interface EncodedTransition {
  /** Id of the instance. */
  readonly id: string;
  /** The transition as a JSON object. */
  readonly text: string;
}

interface QueuedTransition extends EncodedTransition {
  readonly resolve: (isSaved: boolean) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Saves transitions without further effects in batches. Transitions that arrive during a write form the next batch: one
 * statement and one commit, in which each is still guarded by its version.
 */
export class TransitionWriter {
  readonly #database: Queryable;
  readonly #save: Statement;
  #waiting: QueuedTransition[] = [];
  #writing = false;

  constructor(database: Queryable, save: Statement) {
    this.#database = database;
    this.#save = save;
  }

  /** Resolves with whether the transition was saved. False if its version is stale or the row is locked. */
  save({ id, text }: EncodedTransition): Promise<boolean> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ id, text, resolve, reject });
      if (!this.#writing) void this.#writeAll();
    });
  }

  async #writeAll(): Promise<void> {
    this.#writing = true;
    while (this.#waiting.length > 0) {
      await yieldToEventLoop(); // lets transitions of the same tick join the batch
      await this.#write(this.#nextBatch());
    }
    this.#writing = false;
  }

  // A batch holds at most one transition per instance, in order of arrival.
  #nextBatch(): QueuedTransition[] {
    const batch = new Map<string, QueuedTransition>();
    const rest: QueuedTransition[] = [];
    let characters = 0;
    for (const one of this.#waiting) {
      const fits = batch.size < MAX_BATCH_SIZE && characters + one.text.length <= MAX_BATCH_CHARACTERS;
      if (batch.size > 0 && (!fits || batch.has(one.id))) rest.push(one);
      else {
        batch.set(one.id, one);
        characters += one.text.length;
      }
    }
    this.#waiting = rest;
    return [...batch.values()];
  }

  async #write(batch: readonly QueuedTransition[]): Promise<void> {
    const text = `[${batch.map((one) => one.text).join()}]`;
    try {
      const { rows } = await this.#database.run<{ id: string }>(this.#save, [text]);
      const saved = new Set(rows.map(({ id }) => id));
      for (const { id, resolve } of batch) resolve(saved.has(id));
    } catch (error) {
      if (batch.length === 1) return batch[0]?.reject(error);
      // One bad transition must not fail the others, and the error does not name it: save each alone.
      await Promise.all(batch.map((one) => this.#write([one])));
    }
  }
}

interface WrittenRow {
  readonly id: string;
  readonly has_input?: boolean;
}

/** Saves a transition. Resolves with whether a new instance has pending input. Throws SAGA_CONFLICT on a stale version. */
export async function writeTransition(
  sql: SagaStatements,
  tx: Queryable,
  before: LoadedInstance,
  transition: Transition,
  birth: Birth | undefined,
): Promise<boolean> {
  const { id, type, key } = before;
  if (birth === undefined) {
    const { rows } = await tx.run(sql.save, [`[${toJsonText(transition)}]`]);
    if (rows.length === 0) throw conflict(id);
    return false;
  }
  const insert = transition.plain.incident !== undefined ? sql.insertFailed : sql.insert;
  const { rows } = await tx.run<WrittenRow>(insert, insertParams(before, birth, transition));
  if (rows[0] === undefined) throw conflict(id);
  if (rows[0].has_input !== true) return false;
  await tx.run(sql.collect, [id, type, key]);
  return true;
}

export function conflict(id: string): SagaboxError {
  return new SagaboxError("SAGA_CONFLICT", `Saga ${id} was changed by another transaction at the same time.`);
}
