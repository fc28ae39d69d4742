import { EventEmitter } from "node:events";
import type { ByteSource } from "./bytes.ts";

/**
 * Adds an error listener to a Node stream at once and throws a recorded error when the stream is read. Node ends the
 * process when a stream without a listener fails, and reading begins only after calls to the database and the store.
 */
export function catchStreamErrors(source: ByteSource): ByteSource {
  if (source instanceof Uint8Array || !(source instanceof EventEmitter)) return source;
  let failure: { readonly error: unknown } | undefined;
  const onError = (error: unknown): void => void (failure ??= { error });
  source.on("error", onError);
  source.once("close", () => source.off("error", onError)); // a closed stream emits no more errors
  return {
    async *[Symbol.asyncIterator]() {
      if (failure !== undefined) throw failure.error;
      yield* source as AsyncIterable<Uint8Array>;
    },
  };
}
