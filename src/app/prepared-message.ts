import { SagaboxError } from "../errors/index.ts";
import type { AnyContract, InputOf } from "../message/index.ts";
import type { Compose, Outgoing, PublishOptions } from "../outbox/index.ts";
import type { Queryable } from "../storage/index.ts";

/** A contract with its data, for `bus.publishAll()`. Made by `message()`. */
export interface PreparedMessage {
  readonly contract: AnyContract;
  readonly data: unknown;
  readonly options?: PublishOptions;
}

/** Pairs a contract with data of its type: `bus.publishAll(tx, message(A, a), message(B, b))`. */
export function message<C extends AnyContract>(
  contract: C,
  data: InputOf<C>,
  options?: PublishOptions,
): PreparedMessage {
  return options === undefined ? { contract, data } : { contract, data, options };
}

/** Composes the messages one after another in a transaction. Throws at the first invalid one. */
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
