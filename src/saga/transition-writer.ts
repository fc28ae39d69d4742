import { yieldToEventLoop } from "../runtime/index.ts";
import type { Queryable, Statement } from "../storage/index.ts";

const MAX_BATCH_SIZE = 100;
/** Of text: a few large states need not wait for each other. */
const MAX_BATCH_CHARACTERS = 1_000_000;

interface EncodedTransition {
  /** Of the instance. */
  readonly id: string;
  /** A JSON object. */
  readonly text: string;
}

interface QueuedTransition extends EncodedTransition {
  readonly told: (saved: boolean) => void;
  readonly failed: (error: unknown) => void;
}

/**
 * Writes transitions that are nothing but a new state. Those that are ready while others are being written go together,
 * in one statement and one commit, where each is still checked by its own version.
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

  /** Whether it was saved: not when somebody else has moved the instance, or holds its row right now. */
  save({ id, text }: EncodedTransition): Promise<boolean> {
    return new Promise((told, failed) => {
      this.#waiting.push({ id, text, told, failed });
      if (!this.#writing) void this.#writeAll();
    });
  }

  async #writeAll(): Promise<void> {
    this.#writing = true;
    while (this.#waiting.length > 0) {
      await yieldToEventLoop(); // whoever is ready in the same moment comes along
      await this.#write(this.#nextBatch());
    }
    this.#writing = false;
  }

  // An instance is in a group only once, in the order in which its transitions came.
  #nextBatch(): QueuedTransition[] {
    const group = new Map<string, QueuedTransition>();
    const rest: QueuedTransition[] = [];
    let letters = 0;
    for (const one of this.#waiting) {
      const fits = group.size < MAX_BATCH_SIZE && letters + one.text.length <= MAX_BATCH_CHARACTERS;
      if (group.size > 0 && (!fits || group.has(one.id))) rest.push(one);
      else {
        group.set(one.id, one);
        letters += one.text.length;
      }
    }
    this.#waiting = rest;
    return [...group.values()];
  }

  async #write(group: readonly QueuedTransition[]): Promise<void> {
    const text = `[${group.map((one) => one.text).join()}]`;
    try {
      const { rows } = await this.#database.run<{ id: string }>(this.#save, [text]);
      const saved = new Set(rows.map(({ id }) => id));
      for (const { id, told } of group) told(saved.has(id));
    } catch (error) {
      if (group.length === 1) return group[0]?.failed(error);
      // Whatever one of them has must not hold up the others, nor is it known here which one that is.
      await Promise.all(group.map((one) => this.#write([one])));
    }
  }
}
