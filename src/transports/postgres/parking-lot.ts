import { laneOf, streamOf, type Message } from "../../message/index.ts";
import { quotedSchema, storable, textArray } from "../../storage/index.ts";
import type { HomeDatabase } from "../../transport/index.ts";
import { messageParams } from "./publisher.ts";
import { queueStatements } from "./statements.ts";

/** A message of another broker that waits here, with its key. */
export interface Parked {
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
export class ParkingLot {
  readonly #home: HomeDatabase;
  readonly #group: number;
  readonly #wake: (lanes: readonly number[]) => void;

  constructor(home: HomeDatabase, group: number, wake: (lanes: readonly number[]) => void) {
    this.#home = home;
    this.#group = group;
    this.#wake = wake;
  }

  /** All of them or none, behind what waits of their keys already. */
  async park(parked: readonly Parked[]): Promise<void> {
    const { database, schema } = this.#home;
    const { rows } = await database.run<{ lane: number }>(queueStatements(quotedSchema(schema)).park, [
      ...messageParams(parked.map(({ message }) => message)),
      this.#group,
      textArray(parked.map(({ attempts }) => attempts)),
      textArray(parked.map(({ delayMs }) => delayMs)),
      textArray(parked.map(({ error }) => (error === null ? null : storable(error)))),
    ]);
    this.#wake([...new Set(rows.map(({ lane }) => lane))]);
  }

  /** Those of these keys that have something waiting here, as the texts of their streams. */
  async occupied(keys: readonly { readonly topic: string; readonly key: string }[]): Promise<Set<string>> {
    const { database, schema } = this.#home;
    const { rows } = await database.run<{ stream: string }>(queueStatements(quotedSchema(schema)).parked, [
      this.#group,
      textArray(keys.map(({ key }) => laneOf(key))),
      textArray(keys.map(({ topic, key }) => streamOf(topic, key))),
    ]);
    return new Set(rows.map(({ stream }) => stream));
  }
}
