import type { TopicRequest } from "../transport/index.ts";
import type { ConsumerDefinition } from "./registry.ts";

// A command that came before its first consumer is not lost; a second consumer does not carry out the old ones.
/** What a consumer asks of a transport for one of its topics. */
export function topicRequest(
  { handlers, settings }: Pick<ConsumerDefinition, "handlers" | "settings">,
  topic: string,
): TopicRequest {
  const kinds = [...handlers.values()].flatMap((handler) =>
    handler.topic === topic ? [handler.contract.kind] : [],
  );
  const kind = kinds.includes("command") ? "command" : (kinds[0] ?? "event");
  return { topic, kind, from: settings.from ?? (kind === "command" ? "unclaimed" : "now") };
}
