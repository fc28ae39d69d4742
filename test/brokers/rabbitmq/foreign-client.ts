import { connect, type ConfirmChannel, type GetMessage } from "amqplib";

/** What an operator or a foreign program does at the broker, past the transport. */
export interface ForeignClient {
  readonly directly: <T>(act: (channel: ConfirmChannel) => Promise<T>) => Promise<T>;
  readonly putBytes: (exchange: string, routingKey: string, body: Uint8Array) => Promise<void>;
  /** Reads all messages of a queue, which keeps them. */
  readonly lookInto: (queue: string) => Promise<readonly GetMessage[]>;
}

export function connectForeignClient(url: string): ForeignClient {
  const directly: ForeignClient["directly"] = async (act) => {
    const connection = await connect(url);
    try {
      return await act(await connection.createConfirmChannel());
    } finally {
      await connection.close();
    }
  };
  return {
    directly,
    putBytes: (exchange, routingKey, body) =>
      directly(async (channel) => {
        channel.publish(exchange, routingKey, Buffer.from(body));
        await channel.waitForConfirms();
      }),
    lookInto: (queue) =>
      directly(async (channel) => {
        const found: GetMessage[] = [];
        for (let next = await channel.get(queue); next !== false; next = await channel.get(queue))
          found.push(next);
        return found;
      }),
  };
}
