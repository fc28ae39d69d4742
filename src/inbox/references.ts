import { SagaboxError } from "../errors/index.ts";
import { parseReferences, supersedesHeader, undoesHeader, type Message } from "../message/index.ts";
import type { ConsumerDefinition } from "./registry.ts";

/** Earlier commands, as this consumer knows their type. */
export interface Earlier {
  readonly type: string;
  readonly topic: string;
  readonly ids: readonly string[];
}

/** What a command says about earlier ones that concern this consumer. */
export interface EarlierCommands {
  /** It takes these back. */
  readonly undoes: Earlier | undefined;
  /** It stands for these, which may or may not have been carried out. */
  readonly supersedes: Earlier | undefined;
}

type ReferringMessage = Pick<Message, "kind" | "headers">;

/** Such a command needs a transaction of its own and the rules for what it refers to. */
export function refersToOthers({ kind, headers }: ReferringMessage): boolean {
  return (
    kind === "command" && (headers[undoesHeader] !== undefined || headers[supersedesHeader] !== undefined)
  );
}

/**
 * Undefined when it refers to nothing, or to commands that this consumer does not carry out: then nothing is known of
 * them here, and its handler has to cope by itself.
 */
export function earlierCommands(
  message: ReferringMessage,
  id: string,
  handlers: ConsumerDefinition["handlers"],
): EarlierCommands | undefined {
  if (!refersToOthers(message)) return undefined;
  const read = (header: string): Earlier | undefined => {
    const value = message.headers[header];
    if (value === undefined) return undefined;
    const { type, ids } = parseReferences(value);
    if (ids.includes(id)) {
      throw new SagaboxError("HEADER_INVALID", `The header "${header}" names the message that carries it.`);
    }
    const registration = handlers.get(type);
    return registration === undefined ? undefined : { type, topic: registration.topic, ids };
  };
  const [undoes, supersedes] = [read(undoesHeader), read(supersedesHeader)];
  return undoes === undefined && supersedes === undefined ? undefined : { undoes, supersedes };
}
