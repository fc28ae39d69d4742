import { Consumer, HandlerRegistry, type ConsumerParts } from "../inbox/index.ts";
import { encodeJson, replyContract, replyTopicFor } from "../message/index.ts";
import { quoteSchema } from "../storage/index.ts";
import { replyNotice } from "./replies.ts";
import { requestStatements } from "./statements.ts";

export type ReplyConsumerParts = Omit<ConsumerParts, "definition" | "ledger"> & {
  readonly schema: string;
  /** Notification channel for stored replies. */
  readonly channel: string;
};

/** Makes the consumer that stores replies to this service in the `reply` table. All workers of the service share it. */
export function replyConsumer({ schema, channel, ...parts }: ReplyConsumerParts): Consumer {
  const topic = replyTopicFor(parts.service);
  const { keep } = requestStatements(quoteSchema(schema));
  const registry = new HandlerRegistry();
  registry.on(replyContract(topic), {
    consumer: `${topic.slice("replies.".length)}.replies`,
    ordered: false,
    from: "beginning", // a reply may arrive before the consumer first starts
    statement: ({ data }) => ({
      text: keep,
      params: [data.requestId, data.outcome, encodeJson(data), channel, replyNotice(data.requestId)],
    }),
  });
  const [definition] = registry.consumers();
  if (definition === undefined) throw new Error("a consumer was registered");
  return new Consumer({ ...parts, definition });
}
