import { Consumer, HandlerRegistry, type ConsumerParts } from "../inbox/index.ts";
import { encodeJson, replyContract, replyTopicFor } from "../message/index.ts";
import { quoteSchema } from "../storage/index.ts";
import { replyNotice } from "./replies.ts";
import { requestStatements } from "./statements.ts";

export type ReplyConsumerParts = Omit<ConsumerParts, "definition" | "ledger"> & {
  readonly schema: string;
  /** Where those who wait are told. */
  readonly channel: string;
};

/** Writes replies to this service into the table where those who wait look. Its members compete like all others. */
export function replyConsumer({ schema, channel, ...parts }: ReplyConsumerParts): Consumer {
  const topic = replyTopicFor(parts.service);
  const { keep } = requestStatements(quoteSchema(schema));
  const registry = new HandlerRegistry();
  registry.on(replyContract(topic), {
    consumer: `${topic.slice("replies.".length)}.replies`,
    ordered: false,
    from: "beginning", // a reply may be there before its first reader is
    statement: ({ data }) => ({
      text: keep,
      params: [data.requestId, data.outcome, encodeJson(data), channel, replyNotice(data.requestId)],
    }),
  });
  const [definition] = registry.consumers();
  if (definition === undefined) throw new Error("a consumer was registered");
  return new Consumer({ ...parts, definition });
}
