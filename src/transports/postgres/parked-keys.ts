import { laneFor, streamFor, type Message } from "../../message/index.ts";
import { quoteSchema, replaceNul, toArrayLiteral } from "../../storage/index.ts";
import type { HomeDatabase } from "../../transport/index.ts";
import { messageParams } from "./publisher.ts";
import { queueStatements } from "./statements.ts";

/** A message from a broker that waits in PostgreSQL behind earlier messages of its key. */
export interface ParkedMessage {
  readonly message: Message;
  /** The number of attempts that have failed so far. */
  readonly attempts: number;
  readonly delayMs: number;
  readonly error: string | null;
}

/**
 * Parks the failed messages of a key for a consumer group of a broker: in that group's queue, in order, with the
 * lanes, leases and retries of the Postgres transport. The broker can deliver other keys meanwhile.
 */
export class ParkedKeys {
  readonly #home: HomeDatabase;
  readonly #group: number;
  readonly #wake: (lanes: readonly number[]) => void;

  constructor(home: HomeDatabase, group: number, wake: (lanes: readonly number[]) => void) {
    this.#home = home;
    this.#group = group;
    this.#wake = wake;
  }

  /** Parks all of these messages or none, behind the messages of their keys that already wait. */
  async park(parked: readonly ParkedMessage[]): Promise<void> {
    const { database, schema } = this.#home;
    const { rows } = await database.run<{ lane: number }>(queueStatements(quoteSchema(schema)).park, [
      ...messageParams(parked.map(({ message }) => message)),
      this.#group,
      toArrayLiteral(parked.map(({ attempts }) => attempts)),
      toArrayLiteral(parked.map(({ delayMs }) => delayMs)),
      toArrayLiteral(parked.map(({ error }) => (error === null ? null : replaceNul(error)))),
    ]);
    this.#wake([...new Set(rows.map(({ lane }) => lane))]);
  }

  /** Returns the streams of those keys that have parked messages. */
  async occupied(keys: readonly { readonly topic: string; readonly key: string }[]): Promise<Set<string>> {
    const { database, schema } = this.#home;
    const { rows } = await database.run<{ stream: string }>(queueStatements(quoteSchema(schema)).parked, [
      this.#group,
      toArrayLiteral(keys.map(({ key }) => laneFor(key))),
      toArrayLiteral(keys.map(({ topic, key }) => streamFor(topic, key))),
    ]);
    return new Set(rows.map(({ stream }) => stream));
  }
}
