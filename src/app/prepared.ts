import { SagaboxError } from "../errors/index.ts";
import type { AnyContract, InputOf } from "../message/index.ts";
import type { PublishOptions } from "../outbox/index.ts";

/** A message that is checked and ready, for publishing several at once. */
export interface Prepared {
  readonly contract: AnyContract;
  readonly data: unknown;
  readonly options?: PublishOptions;
}

/** Typed on the way in, plain afterwards: `bus.publishAll(tx, message(A, a), message(B, b))`. */
export function message<C extends AnyContract>(
  contract: C,
  data: InputOf<C>,
  options?: PublishOptions,
): Prepared {
  return options === undefined ? { contract, data } : { contract, data, options };
}

export function prepared(one: Prepared | null | undefined): Prepared {
  if (typeof one === "object" && one !== null && "contract" in one) return one;
  throw new SagaboxError("OPTIONS_INVALID", "publishAll takes messages made by message(contract, data).");
}
