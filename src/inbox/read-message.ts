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
 * The message with its data read, brought to the current version and validated; throws what can never get better. Most
 * are read at once, so there is a promise only where somebody has to be waited for.
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
  const checked =
    hidden.length > 0
      ? readAround(contract, message, data, hidden)
      : validate(contract, upcast(contract, message.schemaVersion, data));
  if (!(checked instanceof Promise)) return { ...message, data: checked };
  return checked.then((read) => ({ ...message, data: read }));
}

// What an upcaster or a schema makes of an erased value cannot be mended by anybody: it is passed over, not dead.
async function readAround(
  contract: AnyContract,
  { schemaVersion }: Message,
  data: unknown,
  hidden: readonly HiddenField[],
): Promise<unknown> {
  try {
    return await validateIgnoring(contract, upcast(contract, schemaVersion, data), hidden);
  } catch (error) {
    if (hidden.some((one) => one.as === "erased")) throw ignore("a person in it was erased");
    throw error;
  }
}

/** The id dedupe hangs on, or an error: without one, all such messages would count as one. */
export function idForDedupe(id: unknown): string {
  if (isValidId(id)) return id;
  throw idFlaw(id);
}

/** What is wrong with an id that cannot be used. */
export function idFlaw(id: unknown): SagaboxError<"MESSAGE_ID_MISSING" | "MESSAGE_ID_INVALID"> {
  if (id === undefined || id === null || (typeof id === "string" && id.trim() === "")) {
    return new SagaboxError(
      "MESSAGE_ID_MISSING",
      "The message has no id, so it cannot be handled exactly once. Let its publisher send one, or derive it with `idOf`.",
    );
  }
  return new SagaboxError(
    "MESSAGE_ID_INVALID",
    "The id of the message must be a text of 1 to 255 characters without control characters.",
  );
}
