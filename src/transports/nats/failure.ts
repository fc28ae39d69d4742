import { errorText } from "../../errors/index.ts";
import { apiCodes, natsClient } from "./client.ts";

/**
 * The client reports "JetStream is not enabled" for every request without a responder. The server says at connection
 * time whether JetStream is enabled, so a missing responder later means a missing leader.
 */
const NO_LEADER =
  "No leader of the stream answered (503 no responders): one is being elected, or the nodes that hold it are down";

const withoutLeader: ReadonlySet<number> = new Set([
  apiCodes.temporarilyUnavailable,
  apiCodes.streamOffline,
  apiCodes.consumerOffline,
]);

/** Describes an error of the server or client in words that an operator can act on. */
export function describeFailure(error: unknown): string {
  const { jetstream, node } = natsClient.client;
  for (const cause of iterateCauses(error)) {
    if (hasNoResponders(cause)) return NO_LEADER;
    if (cause instanceof jetstream.JetStreamApiError && withoutLeader.has(cause.code))
      return `JetStream has no leader at the moment: ${cause.message} (${cause.code})`;
    if (cause instanceof node.errors.TimeoutError) return "NATS did not answer in time";
  }
  return errorText(error);
}

/** Returns true if the request may succeed later: no leader answered, or the answer came too late. */
export function isWithoutAnswer(error: unknown): boolean {
  const { jetstream, node } = natsClient.client;
  return [...iterateCauses(error)].some(
    (cause) =>
      hasNoResponders(cause) ||
      cause instanceof node.errors.TimeoutError ||
      (cause instanceof jetstream.JetStreamApiError && withoutLeader.has(cause.code)),
  );
}

export function hasNoResponders(error: unknown): boolean {
  return (
    error instanceof natsClient.client.node.errors.NoRespondersError ||
    readErrorName(error) === "JetStreamNotEnabled"
  );
}

/** Yields the error and its causes, outermost first. */
export function* iterateCauses(error: unknown): Generator<unknown> {
  for (let at = error, depth = 0; at !== undefined && depth < 5; depth++) {
    yield at;
    at = at instanceof Error ? at.cause : undefined;
  }
}

function readErrorName(error: unknown): string | undefined {
  return error instanceof Error ? error.name : undefined;
}
