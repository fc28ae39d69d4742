import { SagaboxError } from "../errors/index.ts";
import type { AnyContract } from "./contract.ts";
import { isValidId } from "./message-id.ts";

/** Returns the key of this data, or null if the contract has no key. Throws KEY_INVALID. */
export function readMessageKey(contract: AnyContract, data: unknown): string | null {
  if (contract.key === undefined) return null;
  const key: unknown = contract.key(data);
  if (isValidId(key)) return key;
  throw new SagaboxError(
    "KEY_INVALID",
    `The key function of "${contract.name}" must return a string of 1 to 255 characters without control characters.`,
  );
}
