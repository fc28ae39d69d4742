import { SagaboxError } from "../errors/index.ts";
import type { MessageKind } from "./message.ts";

/**
 * Chooses the topic of a message whose contract names none. Returning undefined selects the default topic.
 */
export type Routing = (message: { readonly kind: MessageKind; readonly type: string }) => string | undefined;

interface RoutedContract {
  readonly kind: MessageKind;
  readonly name: string;
  readonly topic: string | null;
}

const prefix: Record<MessageKind, string> = { event: "events", command: "commands", stream: "streams" };

/**
 * Returns the contract's topic, else the routing function's, else a default such as `events.order.created`.
 * Throws TOPIC_INVALID.
 */
export function resolveTopic(contract: RoutedContract, routing?: Routing): string {
  const { kind, name } = contract;
  const topic = contract.topic ?? routing?.({ kind, type: name }) ?? defaultTopic(contract);
  if (isValidTopic(topic)) return topic;
  throw new SagaboxError(
    "TOPIC_INVALID",
    `The topic of ${kind} "${name}" must have 1 to 249 letters, digits, dots, dashes or underscores.`,
  );
}

export function isValidTopic(topic: unknown): topic is string {
  return (
    typeof topic === "string" && /^[A-Za-z0-9._-]{1,249}$/.test(topic) && topic !== "." && topic !== ".."
  );
}

// Cached per contract, because building the name costs more than the rest of the lookup.
const defaultTopics = new WeakMap<RoutedContract, string>();

function defaultTopic(contract: RoutedContract): string {
  const found = defaultTopics.get(contract);
  if (found !== undefined) return found;
  const topic = `${prefix[contract.kind]}.${toDotted(contract.name)}`;
  defaultTopics.set(contract, topic);
  return topic;
}

// OrderCreated, order_created and order-created are the same topic.
function toDotted(name: string): string {
  return name
    .replace(/([a-z0-9])([A-Z])/g, "$1.$2")
    .replace(/([A-Z])([A-Z][a-z])/g, "$1.$2")
    .replace(/[._-]+/g, ".")
    .replace(/^\.|\.$/g, "")
    .toLowerCase();
}
