import { isValidId, type Message } from "../message/index.ts";
import type { Delivery } from "../transport/index.ts";
import type { InboxEngine } from "./engine.ts";
import { refersToOthers } from "./earlier-commands.ts";
import type { ConsumerDefinition, Registration } from "./registry.ts";

/** A delivery that a consumer has received and not settled. */
export interface InFlightDelivery {
  readonly delivery: Delivery;
  /** The id for the dedupe row. Undefined if the message has no usable id. */
  readonly id: string | undefined;
  /** Undefined if the consumer has no handler for the type. */
  readonly registration: Registration | undefined;
  /** True for a command that refers to earlier commands. It is not handled in a batch. */
  readonly refers: boolean;
  readonly arrivedMs: number;
  /** Set for a suspect: how many processes died while they ran only this message. */
  crashes: number | undefined;
  /** True after a shared transaction was rolled back: the delivery is retried in its own transaction. */
  alone?: boolean;
  /** The personal data found when the message was read. It is removed from errors. */
  secrets?: readonly string[];
}

export function trackDelivery(
  delivery: Delivery,
  { definition, engine }: { readonly definition: ConsumerDefinition; readonly engine: InboxEngine },
): InFlightDelivery {
  const { message } = delivery; // throws if the transport has lost its copy of the message
  const own = delivery.flaw === undefined && isValidId(message.id);
  const id = own ? message.id : deriveId(message, definition);
  return {
    delivery,
    id: isValidId(id) ? id : undefined,
    registration: definition.handlers.get(message.type),
    refers: delivery.flaw === undefined && refersToOthers(message),
    arrivedMs: engine.clock.monotonicMs(),
    crashes: undefined,
  };
}

// The user's function gets messages of unknown form and may throw. Then there is no id, and the message is dead-lettered.
function deriveId(message: Message, { settings }: ConsumerDefinition): unknown {
  try {
    return settings.idOf?.(message);
  } catch {
    return undefined;
  }
}

/** True if both deliveries may be handled in one transaction. They must have the same handler. */
export function canShareBatch(first: InFlightDelivery, other: InFlightDelivery): boolean {
  if (runsAlone(other) || other.registration !== first.registration) return false;
  return first.registration?.work.kind !== "statement" || isBatchableStatement(other);
}

/** True for a suspect, and for a command whose handler may have to be skipped. */
export function runsAlone({ crashes, refers }: InFlightDelivery): boolean {
  return crashes !== undefined || refers;
}

/**
 * True for an event on its first attempt whose handler is one statement: it may share a transaction with others of its
 * kind. A command may need a reply, and a message that failed before would likely fail the others.
 */
export function isBatchableStatement({ registration, delivery, alone }: InFlightDelivery): boolean {
  return (
    alone !== true &&
    registration?.work.kind === "statement" &&
    registration.contract.kind !== "command" &&
    delivery.attempt === 1 &&
    delivery.flaw === undefined
  );
}

/**
 * Items that wait to run. Items of different keys may run at once; items of one key run one after the other in the order
 * of arrival. Taking an item blocks its key: later items of that key wait until it is finished.
 */
export class KeyOrder<T extends object> {
  readonly #getKey: (item: T) => string | null;
  readonly #waiting = new Map<string, T[]>();
  #ready: T[] = [];

  constructor(getKey: (item: T) => string | null) {
    this.#getKey = getKey;
  }

  /** The number of items that can be taken now, without their waiting successors. */
  get ready(): number {
    return this.#ready.length;
  }

  push(item: T): void {
    const key = this.#getKey(item);
    const queue = key === null ? undefined : this.#waiting.get(key);
    if (queue !== undefined) queue.push(item);
    else {
      this.#ready.push(item);
      if (key !== null) this.#waiting.set(key, []);
    }
  }

  /** The item that is taken next. */
  get first(): T | undefined {
    return this.#ready[0];
  }

  /** Takes the first ready item and up to `maxSize` items in all that `belongsWith` it, including successors of its key. */
  take(maxSize: (first: T) => number, belongsWith: (first: T, other: T) => boolean): T[] {
    const first = this.#ready.shift();
    if (first === undefined) return [];
    const max = maxSize(first);
    const taken = [first];
    this.#takeSuccessors(first, first, taken, max, belongsWith);
    if (max > 1) {
      this.#ready = this.#ready.filter((other) => {
        if (taken.length >= max || !belongsWith(first, other)) return true;
        taken.push(other);
        this.#takeSuccessors(first, other, taken, max, belongsWith);
        return false;
      });
    }
    return taken;
  }

  /** Unblocks the keys of the `done` items. The `again` items become ready before all others. */
  finish(done: readonly T[], again: readonly T[] = []): void {
    if (again.length > 0) this.#putBack(again);
    const open = this.#listKeys(again);
    for (const key of this.#listKeys(done)) {
      if (open.has(key)) continue;
      const next = this.#waiting.get(key)?.shift();
      if (next === undefined) this.#waiting.delete(key);
      else this.#ready.push(next);
    }
  }

  /** Removes and returns the items that wait behind a taken item. */
  takeWaiting(item: T): T[] {
    const key = this.#getKey(item);
    return key === null ? [] : (this.#waiting.get(key)?.splice(0) ?? []);
  }

  /** Removes and returns all items that were not taken. */
  drain(): T[] {
    const ready = this.#ready.splice(0);
    const waiting = [...this.#waiting.values()].flatMap((queue) => queue.splice(0));
    this.finish(ready);
    return [...ready, ...waiting];
  }

  #putBack(items: readonly T[]): void {
    const heads: T[] = [];
    const later: T[] = [];
    const seen = new Set<string | null>();
    for (const item of items) {
      const key = this.#getKey(item);
      (key !== null && seen.has(key) ? later : heads).push(item);
      seen.add(key);
    }
    this.#ready.unshift(...heads);
    for (const item of later.toReversed()) this.#waiting.get(this.#getKey(item) ?? "")?.unshift(item);
  }

  #takeSuccessors(
    first: T,
    item: T,
    taken: T[],
    max: number,
    belongsWith: (first: T, other: T) => boolean,
  ): void {
    const key = this.#getKey(item);
    const queue = key === null ? undefined : this.#waiting.get(key);
    while (
      queue !== undefined &&
      taken.length < max &&
      queue[0] !== undefined &&
      belongsWith(first, queue[0])
    ) {
      taken.push(queue[0]);
      queue.shift();
    }
  }

  #listKeys(items: readonly T[]): Set<string> {
    return new Set(items.map(this.#getKey).filter((key) => key !== null));
  }
}
