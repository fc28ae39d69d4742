import { createHash } from "node:crypto";
import type { BlobReference } from "../message/index.ts";
import { systemClock } from "../runtime/index.ts";
import type { Queryable } from "../storage/index.ts";
import { isLocalStore, type BlobStore } from "./blob-store.ts";
import { splitBytes, type Meter } from "./bytes.ts";
import { uploadAbandoned, type BlobUser, type Ledger } from "./ledger.ts";

const neverAborted = new AbortController().signal;

/**
 * Stores bytes under new keys. The row of a key is written before its first byte, so the collector never sees an object
 * without a row that an open transaction or an upload in progress still needs.
 */
export class Uploads {
  readonly #ledger: Ledger;
  readonly #store: BlobStore;
  readonly #touchEveryMs: number;

  constructor(ledger: Ledger, store: BlobStore, graceMs: number) {
    this.#ledger = ledger;
    this.#store = store;
    this.#touchEveryMs = graceMs / 4;
  }

  /** Stores the payload of a message. A rollback of `tx` leaves an object without a row, which the collector deletes. */
  async putPayload(payload: Buffer, tx: Queryable | undefined, message: BlobUser): Promise<BlobReference> {
    const store = this.#store;
    const key = await this.#ledger.newKey(tx);
    const sha256 = createHash("sha256").update(payload).digest("hex");
    const reference = { store: store.id, key, bytes: payload.byteLength, sha256 };
    await this.#ledger.recordBlob(tx, reference, message);
    try {
      if (tx !== undefined && isLocalStore(store)) await store.putIn(tx, key, splitBytes(payload));
      else await store.put(key, splitBytes(payload), neverAborted);
      return reference;
    } catch (error) {
      if (tx === undefined) await this.#discard(key);
      throw error;
    }
  }

  /** Stores bytes that no message uses yet. May take longer than the grace period as long as bytes keep arriving. */
  async putAttachment(meter: Meter): Promise<BlobReference> {
    const store = this.#store;
    const key = await this.#ledger.newKey();
    await this.#ledger.reserve(key, store.id);
    try {
      await store.put(key, this.#touchWhileReading(key, meter), neverAborted);
      const reference = { store: store.id, key, ...meter.finish() };
      await this.#ledger.complete(reference);
      return reference;
    } catch (error) {
      const isAbandoned = !(await this.#discard(key));
      throw isAbandoned && !meter.isBroken ? uploadAbandoned() : error;
    }
  }

  async *#touchWhileReading(key: string, bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    let touchedMs = systemClock.monotonicMs();
    for await (const piece of bytes) {
      if (systemClock.monotonicMs() - touchedMs >= this.#touchEveryMs) {
        await this.#ledger.touch(key);
        touchedMs = systemClock.monotonicMs();
      }
      yield piece;
    }
  }

  // Leaves what it cannot delete to the collector. Returns false only if the collector has already deleted the row.
  async #discard(key: string): Promise<boolean> {
    await this.#store.delete([key], neverAborted).catch(() => undefined);
    return this.#ledger.discard(key).catch(() => true);
  }
}
