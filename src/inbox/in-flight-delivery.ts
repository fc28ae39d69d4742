import { isValidId, type Message } from "../message/index.ts";
import type { Delivery } from "../transport/index.ts";
import type { InboxEngine } from "./engine.ts";
import { refersToOthers } from "./references.ts";
import type { ConsumerDefinition, Registration } from "./registry.ts";

/** A delivery in the hands of a consumer, from its arrival until it is settled. */
export interface InFlightDelivery {
  readonly delivery: Delivery;
  /** What dedupe hangs on; undefined when the message has no usable id. */
  readonly id: string | undefined;
  /** Undefined when nobody registered for its type. */
  readonly registration: Registration | undefined;
  /** It refers to earlier commands, so it takes part in no batch. */
  readonly refers: boolean;
  readonly arrivedMs: number;
  /** Set for suspects: how often a process died while it ran alone. */
  crashes: number | undefined;
  /** It shared a transaction with others once, in vain. */
  alone?: boolean;
  /** Personal texts in it, once it was read. */
  secrets?: readonly string[];
}

export function trackDelivery(
  delivery: Delivery,
  { definition, engine }: { readonly definition: ConsumerDefinition; readonly engine: InboxEngine },
): InFlightDelivery {
  const { message } = delivery; // a transport whose copy is gone throws here
  const own = delivery.flaw === undefined && isValidId(message.id);
  const id = own ? message.id : derivedId(message, definition);
  return {
    delivery,
    id: isValidId(id) ? id : undefined,
    registration: definition.handlers.get(message.type),
    refers: delivery.flaw === undefined && refersToOthers(message),
    arrivedMs: engine.clock.monotonicMs(),
    crashes: undefined,
  };
}

// It is given what nobody could make sense of, so it may well throw: then there is no id, and the message is buried.
function derivedId(message: Message, { settings }: ConsumerDefinition): unknown {
  try {
    return settings.idOf?.(message);
  } catch {
    return undefined;
  }
}

/** A batch is of one contract. */
export function canShareBatch(first: InFlightDelivery, other: InFlightDelivery): boolean {
  if (runsAlone(other) || other.registration !== first.registration) return false;
  return first.registration?.work.kind !== "statement" || isQuick(other);
}

/** A suspect runs by itself, and so does a command whose handler may have to be skipped. */
export function runsAlone({ crashes, refers }: InFlightDelivery): boolean {
  return crashes !== undefined || refers;
}

/**
 * May share a transaction with others of its kind: an event whose whole effect is one statement. A command may have to
 * be answered, and what has failed before would only spoil it for the others.
 */
export function isQuick({ registration, delivery, alone }: InFlightDelivery): boolean {
  return (
    alone !== true &&
    registration?.work.kind === "statement" &&
    registration.contract.kind !== "command" &&
    delivery.attempt === 1 &&
    delivery.flaw === undefined
  );
}
