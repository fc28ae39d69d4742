import { ignore, SagaboxError } from "../errors/index.ts";
import {
  isValidId,
  upcast,
  validate,
  validateIgnoring,
  type AnyContract,
  type HiddenField,
  type Message,
  type UnpackedPayload,
} from "../message/index.ts";
import type { InboxEngine } from "./engine.ts";
import type { Received } from "./handler.ts";
import type { InFlightDelivery } from "./in-flight-delivery.ts";

type Readable = Pick<InFlightDelivery, "delivery"> & { secrets?: readonly string[] };

/**
 * Decodes the data of a message, upcasts it to the current version and validates it. Throws a permanent error if that
 * fails. Returns a promise only if something must be awaited, such as a key or an attachment.
 */
export function readMessage(
  { unpack }: Pick<InboxEngine, "unpack">,
  contract: AnyContract,
  held: Readable,
): Received | Promise<Received> {
  const unpacking = unpack(contract, held.delivery.message);
  return unpacking instanceof Promise
    ? unpacking.then((unpacked) => readUnpacked(contract, held, unpacked))
    : readUnpacked(contract, held, unpacking);
}

function readUnpacked(
  contract: AnyContract,
  held: Readable,
  { data, hidden, secrets }: UnpackedPayload,
): Received | Promise<Received> {
  const { message } = held.delivery;
  if (secrets.length > 0) held.secrets = secrets;
  const validated =
    hidden.length > 0
      ? readWithHidden(contract, message, data, hidden)
      : validate(contract, upcast(contract, message.schemaVersion, data));
  const keepWire = (received: Received): Received => {
    if (contract.personal !== null && contract.personal.reply.length > 0)
      wireData.set(received, upcast(contract, message.schemaVersion, data));
    return received;
  };
  if (!(validated instanceof Promise)) return keepWire({ ...message, data: validated });
  return validated.then((read) => keepWire({ ...message, data: read }));
}

// Only commands whose replies have encrypted fields need it: `personal.subject` reads the wire form.
const wireData = new WeakMap<Received, unknown>();

/** The data of a command in the form in which they were sent, upcast to the current version. */
export function wireDataOf(message: Received): unknown {
  return wireData.get(message) ?? message.data;
}

// A failure caused by an erased value cannot be repaired, so the message is ignored and not dead-lettered.
async function readWithHidden(
  contract: AnyContract,
  { schemaVersion }: Message,
  data: unknown,
  hidden: readonly HiddenField[],
): Promise<unknown> {
  try {
    return await validateIgnoring(contract, upcast(contract, schemaVersion, data), hidden);
  } catch (error) {
    if (hidden.some((one) => one.as === "erased")) throw ignore("its data subject was erased");
    throw error;
  }
}

/** Returns the id for the dedupe row. Throws if it is unusable, because such messages would count as duplicates. */
export function idForDedupe(id: unknown): string {
  if (isValidId(id)) return id;
  throw invalidIdError(id);
}

/** The error for a message id that is missing or invalid. */
export function invalidIdError(id: unknown): SagaboxError<"MESSAGE_ID_MISSING" | "MESSAGE_ID_INVALID"> {
  if (id === undefined || id === null || (typeof id === "string" && id.trim() === "")) {
    return new SagaboxError(
      "MESSAGE_ID_MISSING",
      "The message has no id, so it cannot be handled exactly once. Send one from the publisher, or derive it with `idOf`.",
    );
  }
  return new SagaboxError(
    "MESSAGE_ID_INVALID",
    "The id of the message must be a string of 1 to 255 characters without control characters.",
  );
}
