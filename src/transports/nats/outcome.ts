import type { JetStreamApiError } from "@nats-io/jetstream";
import { SagaboxError } from "../../errors/index.ts";
import type { PublishOutcome } from "../../transport/index.ts";
import { natsClient } from "./client.ts";
import { iterateCauses, describeFailure, hasNoResponders } from "./failure.ts";
import { unreachableError } from "./link.ts";

type FailedOutcome = Exclude<PublishOutcome, { kind: "published" }>;

const messageTooLarge = 10054;
const wrongStream = 10060;

/** Maps a failed publish to the outcome of its message: `unknown` if the server may have stored it. */
export function toFailedOutcome(error: unknown): FailedOutcome {
  const { jetstream, node } = natsClient.client;
  const { errors } = node;
  for (const cause of iterateCauses(error)) {
    if (cause instanceof jetstream.JetStreamApiError) return classifyApiError(cause);
    if (hasNoResponders(cause))
      return { kind: "unreachable", error: unreachableError(`${describeFailure(error)}.`, error) };
    if (cause instanceof errors.PermissionViolationError) {
      return {
        kind: "unreachable",
        error: unreachableError(`NATS does not allow this user to publish: ${cause.message}.`),
      };
    }
    if (cause instanceof errors.InvalidArgumentError) return { kind: "refused", error: rejectedError(cause) };
  }
  return { kind: "unknown", error: timeoutError(error) };
}

function classifyApiError(error: JetStreamApiError): FailedOutcome {
  if (error.code === messageTooLarge) return { kind: "refused", error: rejectedError(error) };
  if (error.code !== wrongStream && error.status === 400)
    return { kind: "rejected", error: rejectedError(error) };
  const text = describeFailure(error);
  return {
    kind: "unreachable",
    error: unreachableError(`JetStream does not accept the message: ${text}.`, error),
  };
}

function rejectedError(error: Error): SagaboxError {
  return new SagaboxError("TRANSPORT_REJECTED", `NATS refused the message: ${error.message}.`, {
    cause: error,
  });
}

export function timeoutError(cause?: unknown): SagaboxError {
  return new SagaboxError("TRANSPORT_TIMEOUT", "NATS did not confirm the message.", { cause });
}

export function tooLargeError(bytes: number, maxPayload: number): SagaboxError {
  return new SagaboxError(
    "PAYLOAD_TOO_LARGE",
    `The message has ${bytes} bytes with its headers; this server accepts ${maxPayload} (max_payload).`,
  );
}
