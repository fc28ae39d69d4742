import { laneFor, streamFor, type Message } from "../../message/index.ts";
import { quoteSchema, replaceNul, toArrayLiteral } from "../../storage/index.ts";
import type { HomeDatabase } from "../../transport/index.ts";
import { messageParams } from "./publisher.ts";
import { queueStatements } from "./statements.ts";

/** A message of another broker that waits here, with its key. */
export interface ParkedMessage {
  readonly message: Message;
  /** How often it has failed already. */
  readonly attempts: number;
  readonly delayMs: number;
  readonly error: string | null;
}

/**
 * Where a consumer group of a broker keeps the messages of a key that failed: the queue of that group, in order,
 * under the lanes, leases and retries of the Postgres transport. The broker is free of them at once.
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

  /** All of them or none, behind what waits of their keys already. */
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

  /** Those of these keys that have something waiting here, as the texts of their streams. */
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
