import type { JetStreamApiError } from "@nats-io/jetstream";
import { SagaboxError } from "../../errors/index.ts";
import type { PublishOutcome } from "../../transport/index.ts";
import { natsClient } from "./client.ts";
import { causesOf, describeFailure, hasNoResponders } from "./failure.ts";
import { unreachable } from "./link.ts";

type Failed = Exclude<PublishOutcome, { kind: "published" }>;

const messageTooLarge = 10054;
const wrongStream = 10060;

/** What a failed publish means for its message. Whatever may have arrived is unknown. */
export function outcomeOf(error: unknown): Failed {
  const { jetstream, node } = natsClient.client;
  const { errors } = node;
  for (const cause of causesOf(error)) {
    if (cause instanceof jetstream.JetStreamApiError) return ofAnswer(cause);
    if (hasNoResponders(cause))
      return { kind: "unreachable", error: unreachable(`${describeFailure(error)}.`, error) };
    if (cause instanceof errors.PermissionViolationError) {
      return {
        kind: "unreachable",
        error: unreachable(`NATS does not allow this user to publish: ${cause.message}.`),
      };
    }
    if (cause instanceof errors.InvalidArgumentError) return { kind: "refused", error: rejected(cause) };
  }
  return { kind: "unknown", error: timedOut(error) };
}

function ofAnswer(error: JetStreamApiError): Failed {
  if (error.code === messageTooLarge) return { kind: "refused", error: rejected(error) };
  if (error.code !== wrongStream && error.status === 400) return { kind: "rejected", error: rejected(error) };
  const text = describeFailure(error);
  return {
    kind: "unreachable",
    error: unreachable(`JetStream does not accept the message: ${text}.`, error),
  };
}

function rejected(error: Error): SagaboxError {
  return new SagaboxError("TRANSPORT_REJECTED", `NATS refused the message: ${error.message}.`, {
    cause: error,
  });
}

export function timedOut(cause?: unknown): SagaboxError {
  return new SagaboxError("TRANSPORT_TIMEOUT", "NATS did not confirm the message.", { cause });
}

export function tooLarge(bytes: number, most: number): SagaboxError {
  return new SagaboxError(
    "PAYLOAD_TOO_LARGE",
    `The message has ${bytes} bytes with its headers; this server takes ${most} (max_payload).`,
  );
}
