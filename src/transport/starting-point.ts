import { SagaboxError } from "../errors/index.ts";
import type { TopicRequest, Transport } from "./transport.ts";

/**
 * Where a consumer begins that is new to a topic. With a time it gets everything that was published then or later; as
 * brokers know times only roughly, it may also get a little that is older.
 */
export type StartingPoint = "now" | "beginning" | { readonly time: Date };

/** Refuses a time that would silently become another beginning. For whoever subscribes, and for transports. */
export function assertCanBegin(
  { name, capabilities }: Pick<Transport, "name" | "capabilities">,
  topics: readonly TopicRequest[],
): void {
  const { replaysFromTime, replays } = capabilities;
  const beyond = topics.find(
    ({ from, kind }) => typeof from === "object" && !(replaysFromTime && (replays || kind === "stream")),
  );
  if (beyond === undefined) return;
  const can = replaysFromTime ? "it begins at a time only in streams" : "it knows no times";
  throw new SagaboxError(
    "TRANSPORT_CANNOT_REPLAY",
    `The ${beyond.kind} topic "${beyond.topic}" cannot be read from a time on ${name}: ${can}.`,
  );
}
