import { SagaboxError } from "../errors/index.ts";

export function messageExpired(expiresAt: string | null): SagaboxError {
  return new SagaboxError("MESSAGE_EXPIRED", `The message was good until ${expiresAt ?? "an unknown time"}.`);
}

export function killsProcess(crashes: number | undefined): SagaboxError {
  return new SagaboxError(
    "MESSAGE_KILLS_PROCESS",
    `The process died ${crashes} times while it handled nothing but this message.`,
  );
}

export function handlerMissing(consumer: string, type: string): SagaboxError {
  return new SagaboxError(
    "HANDLER_MISSING",
    `Consumer "${consumer}" has no handler for "${type}". Register one, or set unknown: "ignore".`,
  );
}

export function handledElsewhere(consumer: string, topic: string): SagaboxError {
  return new SagaboxError(
    "HANDLER_MISSING",
    `This process has no handler of consumer "${consumer}" for topic "${topic}", but another one has. ` +
      "It waits for that one; register the same handlers in all processes of a consumer.",
  );
}
