import type { Contract } from "./contract.ts";
import type {
  CommandOptions,
  ContractOptions,
  In,
  KeyFunction,
  Out,
  ReplySafe,
  Schema,
  WireSafe,
} from "./contract-options.ts";
import type { FieldPath, WithPersonalFields } from "./personal.ts";
import { readContract } from "./read-contract.ts";

/** Something that happened; any number of consumers may react. With a key, messages of one key keep their order. */
export function event<const T extends Schema, const F extends FieldPath<Out<T>> = never>(
  name: string,
  options: ContractOptions<T, F> & { readonly key: KeyFunction<T> } & WireSafe<T>,
): Contract<"event", WithPersonalFields<Out<T>, F>, In<T>, never, true>;
export function event<const T extends Schema, const F extends FieldPath<Out<T>> = never>(
  name: string,
  options: ContractOptions<T, F> & { readonly key?: never } & WireSafe<T>,
): Contract<"event", WithPersonalFields<Out<T>, F>, In<T>, never, false>;
export function event(name: string, options: object): unknown {
  return readContract("event", name, options);
}

/** Something one service shall do; it answers with the reply, if there is one. */
export function command<
  const T extends Schema,
  const R extends Schema,
  const F extends FieldPath<Out<T>> = never,
  const A extends FieldPath<Out<R>> = never,
>(
  name: string,
  options: CommandOptions<T, F> & {
    readonly key?: KeyFunction<T>;
    readonly reply: R;
    /** `reply`: the fields of the reply that are about the same person. */
    readonly personal?: { readonly reply?: readonly A[] };
  } & WireSafe<T> &
    ReplySafe<R>,
): Contract<"command", WithPersonalFields<Out<T>, F>, In<T>, WithPersonalFields<Out<R>, A>, boolean>;
export function command<const T extends Schema, const F extends FieldPath<Out<T>> = never>(
  name: string,
  options: CommandOptions<T, F> & { readonly key?: KeyFunction<T>; readonly reply?: never } & WireSafe<T>,
): Contract<"command", WithPersonalFields<Out<T>, F>, In<T>, void, boolean>;
export function command(name: string, options: object): unknown {
  return readContract("command", name, options);
}

/** One of a long row of measurements or changes, read in order and kept by the transport. */
export function stream<const T extends Schema, const F extends FieldPath<Out<T>> = never>(
  name: string,
  options: ContractOptions<T, F> & { readonly key: KeyFunction<T> } & WireSafe<T>,
): Contract<"stream", WithPersonalFields<Out<T>, F>, In<T>, never, true>;
export function stream<const T extends Schema, const F extends FieldPath<Out<T>> = never>(
  name: string,
  options: ContractOptions<T, F> & { readonly key?: never } & WireSafe<T>,
): Contract<"stream", WithPersonalFields<Out<T>, F>, In<T>, never, false>;
export function stream(name: string, options: object): unknown {
  return readContract("stream", name, options);
}
