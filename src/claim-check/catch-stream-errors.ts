import { EventEmitter } from "node:events";
import type { ByteSource } from "./bytes.ts";

/**
 * The same source, listened to from now on. Node ends a process whose stream fails while nobody listens, and reading
 * begins only after the first trips to database and store. What failed until then is told to whoever reads.
 */
export function catchStreamErrors(source: ByteSource): ByteSource {
  if (source instanceof Uint8Array || !(source instanceof EventEmitter)) return source;
  let failure: { readonly error: unknown } | undefined;
  const onError = (error: unknown): void => void (failure ??= { error });
  source.on("error", onError);
  source.once("close", () => source.off("error", onError)); // nothing fails any more
  return {
    async *[Symbol.asyncIterator]() {
      if (failure !== undefined) throw failure.error;
      yield* source as AsyncIterable<Uint8Array>;
    },
  };
}
