import {
  formatReferences,
  replyHeader,
  replyTopicFor,
  runInMessageContext,
  supersedesHeader,
  undoesHeader,
} from "../message/index.ts";
import type { Compose, Outgoing } from "../outbox/index.ts";
import type { Queryable } from "../storage/index.ts";
import type { SagaEffect } from "./decision.ts";
import type { LoadedInstance } from "./saga-store.ts";

interface CommandParts {
  readonly service: string;
  readonly compose: Compose;
}

/** Composes a command of a saga, with the headers for its reply and for the commands it undoes or supersedes. */
export async function sagaCommand(
  { compose, service }: CommandParts,
  { id: sagaId, correlationId, traceparent }: LoadedInstance,
  { command, data, id, undoes, supersedes }: Extract<SagaEffect, { kind: "send" }>,
  cause: string,
  tx: Queryable,
): Promise<Outgoing> {
  const composed = await runInMessageContext(
    { messageId: cause.slice(0, 255), correlationId, traceparent, sagaId },
    () => compose(command, data, command.key === undefined ? { id, key: sagaId } : { id }, tx),
  );
  const headers = {
    ...composed.message.headers,
    [replyHeader]: replyTopicFor(sagaReplies(service)),
    ...(undoes === undefined ? {} : { [undoesHeader]: formatReferences(undoes.type, undoes.ids) }),
    ...(supersedes === undefined
      ? {}
      : { [supersedesHeader]: formatReferences(supersedes.type, supersedes.ids) }),
  };
  // The id was generated here, so no duplicate check is needed.
  return { ...composed, ownId: false, message: { ...composed.message, headers } };
}

/** The service name in the reply topic for saga commands. The consumer of the replies has the same name. */
export function sagaReplies(service: string): string {
  return `${service}.sagas`;
}
