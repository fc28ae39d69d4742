import { ignore, SagaboxError } from "../errors/index.ts";
import {
  isValidId,
  upcast,
  validate,
  validateAround,
  type AnyContract,
  type Hidden,
  type Message,
} from "../message/index.ts";
import type { InboxEngine } from "./engine.ts";
import type { Received } from "./handler.ts";
import type { Held } from "./held.ts";

/** The message with its data read, brought to the current version and validated; throws what can never get better. */
export async function readMessage(
  { unpack }: Pick<InboxEngine, "unpack">,
  contract: AnyContract,
  held: Pick<Held, "delivery"> & { secrets?: readonly string[] },
): Promise<Received> {
  const { message } = held.delivery;
  const unpacking = unpack(contract, message);
  const { data, hidden, secrets } = unpacking instanceof Promise ? await unpacking : unpacking;
  if (secrets.length > 0) held.secrets = secrets;
  if (hidden.length > 0) return { ...message, data: await readAround(contract, message, data, hidden) };
  const checked = validate(contract, upcast(contract, message.schemaVersion, data));
  return { ...message, data: checked instanceof Promise ? await checked : checked };
}

// What an upcaster or a schema makes of an erased value cannot be mended by anybody: it is passed over, not dead.
async function readAround(
  contract: AnyContract,
  { schemaVersion }: Message,
  data: unknown,
  hidden: readonly Hidden[],
): Promise<unknown> {
  try {
    return await validateAround(contract, upcast(contract, schemaVersion, data), hidden);
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
