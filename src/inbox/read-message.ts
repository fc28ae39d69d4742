import { SagaboxError } from "../errors/index.ts";
import { decodeJson, isValidId, upcast, validate, type AnyContract, type Message } from "../message/index.ts";
import type { Received } from "./handler.ts";

/** The message with its data read, brought to the current version and validated; throws what can never get better. */
export async function readMessage(contract: AnyContract, message: Message): Promise<Received> {
  const current = upcast(contract, message.schemaVersion, decodeJson(message.data));
  const checked = validate(contract, current);
  return { ...message, data: checked instanceof Promise ? await checked : checked };
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
