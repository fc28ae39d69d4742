import type { JetStreamApiError } from "@nats-io/jetstream";
import { SagaboxError } from "../../errors/index.ts";
import type { PublishOutcome } from "../../transport/index.ts";
import { natsClient } from "./client.ts";
import { unreachable } from "./link.ts";

type Failed = Exclude<PublishOutcome, { kind: "published" }>;

const messageTooLarge = 10054;
const wrongStream = 10060;

/** What a failed publish means for its message. Whatever may have arrived is unknown. */
export function outcomeOf(error: unknown): Failed {
  const { jetstream, node } = natsClient.client;
  const { errors } = node;
  for (const cause of chain(error)) {
    if (cause instanceof jetstream.JetStreamApiError) return ofAnswer(cause);
    if (cause instanceof errors.NoRespondersError || nameOf(cause) === "JetStreamNotEnabled") {
      return {
        kind: "unreachable",
        error: unreachable(
          "No stream takes the message: JetStream is off, or its stream was deleted.",
          error,
        ),
      };
    }
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
  return { kind: "unreachable", error: unreachable(`JetStream takes nothing now: ${error.message}.`, error) };
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

function* chain(error: unknown): Generator<unknown> {
  for (let at = error, depth = 0; at !== undefined && depth < 5; depth++) {
    yield at;
    at = at instanceof Error ? at.cause : undefined;
  }
}

function nameOf(error: unknown): string | undefined {
  return error instanceof Error ? error.name : undefined;
}
