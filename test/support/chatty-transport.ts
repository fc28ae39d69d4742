import type { Transport } from "sagabox";
import type { Message } from "../../src/message/index.ts";

/**
 * A transport that says every reply twice, under two ids so that no inbox can tell, and one more that answers nothing;
 * what was said last comes first.
 */
export function chatty(transport: Transport): Transport {
  const publish: Transport["publish"] = async (batch, options) => {
    const said = batch.filter(({ topic }) => topic.startsWith("replies."));
    const echoes = said.flatMap((reply) => [again(reply), stray(reply)]).reverse();
    if (echoes.length > 0) await transport.publish(echoes, options);
    return transport.publish(batch, options);
  };
  return new Proxy(transport, {
    get: (target, name) => {
      if (name === "publish") return publish;
      const own: unknown = Reflect.get(target, name, target);
      return typeof own === "function" ? (own.bind(target) as unknown) : own;
    },
  });
}

function again(reply: Message): Message {
  return { ...reply, id: `${reply.id}-again` };
}

function stray(reply: Message): Message {
  const body = JSON.parse(reply.data) as object;
  return { ...reply, id: `${reply.id}-stray`, data: JSON.stringify({ ...body, requestId: "nobody" }) };
}
