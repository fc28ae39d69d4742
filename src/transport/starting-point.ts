import { SagaboxError } from "../errors/index.ts";
import type { TopicRequest, Transport } from "./transport.ts";

/**
 * Where a consumer that is new to a topic starts. With a time it gets everything published at or after it; brokers
 * index times roughly, so it may also get slightly older messages.
 */
export type StartingPoint = "now" | "beginning" | { readonly time: Date };

/** Throws `TRANSPORT_CANNOT_REPLAY` if the transport cannot start a topic at the requested time. */
export function assertCanBegin(
  { name, capabilities }: Pick<Transport, "name" | "capabilities">,
  topics: readonly TopicRequest[],
): void {
  const { replaysFromTime, replays } = capabilities;
  const unsupported = topics.find(
    ({ from, kind }) => typeof from === "object" && !(replaysFromTime && (replays || kind === "stream")),
  );
  if (unsupported === undefined) return;
  const can = replaysFromTime ? "it can do so for streams only" : "it does not support start times";
  throw new SagaboxError(
    "TRANSPORT_CANNOT_REPLAY",
    `The ${unsupported.kind} topic "${unsupported.topic}" cannot be read from a given time on ${name}: ${can}.`,
  );
}
