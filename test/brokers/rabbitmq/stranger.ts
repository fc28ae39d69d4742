import { connect, type ConfirmChannel, type GetMessage } from "amqplib";
import { brokerUrl } from "./broker.ts";

/** What an operator or a foreign program does at the broker, past the transport. */
export async function directly<T>(act: (channel: ConfirmChannel) => Promise<T>): Promise<T> {
  const connection = await connect(brokerUrl);
  try {
    return await act(await connection.createConfirmChannel());
  } finally {
    await connection.close();
  }
}

export function putBytes(exchange: string, routingKey: string, body: Uint8Array): Promise<void> {
  return directly(async (channel) => {
    channel.publish(exchange, routingKey, Buffer.from(body));
    await channel.waitForConfirms();
  });
}

/** All that lies in a queue, which keeps it. */
export function lookInto(queue: string): Promise<readonly GetMessage[]> {
  return directly(async (channel) => {
    const found: GetMessage[] = [];
    for (let next = await channel.get(queue); next !== false; next = await channel.get(queue))
      found.push(next);
    return found;
  });
}
