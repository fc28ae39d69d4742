import { SagaboxError } from "../errors/index.ts";
import type { AnyContract, InputOf } from "../message/index.ts";
import type { Compose, Outgoing, PublishOptions } from "../outbox/index.ts";
import type { Queryable } from "../storage/index.ts";

/** A message that is checked and ready, for publishing several at once. */
export interface PreparedMessage {
  readonly contract: AnyContract;
  readonly data: unknown;
  readonly options?: PublishOptions;
}

/** Typed on the way in, plain afterwards: `bus.publishAll(tx, message(A, a), message(B, b))`. */
export function message<C extends AnyContract>(
  contract: C,
  data: InputOf<C>,
  options?: PublishOptions,
): PreparedMessage {
  return options === undefined ? { contract, data } : { contract, data, options };
}

/** All of them, one after the other, for the given transaction. */
export async function composeAll(
  compose: Compose,
  messages: readonly PreparedMessage[],
  within: Queryable,
): Promise<Outgoing[]> {
  const outgoing: Outgoing[] = [];
  for (const one of messages) {
    const { contract, data, options } = assertPrepared(one);
    outgoing.push(await compose(contract, data, options, within));
  }
  return outgoing;
}

function assertPrepared(one: PreparedMessage | null | undefined): PreparedMessage {
  if (typeof one === "object" && one !== null && "contract" in one) return one;
  throw new SagaboxError("OPTIONS_INVALID", "publishAll takes messages made by message(contract, data).");
}
