import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { fromNatsHeaders } from "../../../src/transports/nats/header-mapping.ts";
import { messageSubject, streamNames } from "../../../src/transports/nats/topology.ts";
import type { BrokerDeadLetter } from "../../../src/testing/index.ts";

/** What an operator or a foreign program does at the server, past the transport. */
async function directly<T>(url: string, act: (connection: NatsConnection) => Promise<T>): Promise<T> {
  const connection = await connect({ servers: url.split(",") });
  try {
    return await act(connection);
  } finally {
    await connection.close();
  }
}

export function putBytes(url: string, prefix: string, topic: string, body: Uint8Array): Promise<void> {
  return directly(url, async (connection) => {
    await jetstream(connection).publish(messageSubject(prefix, topic, 0), body);
  });
}

/** The dead letters that came from this topic, found by the name of the group, which contains the topic's. */
export function readDeadLetters(
  url: string,
  prefix: string,
  topic: string,
): Promise<readonly BrokerDeadLetter[]> {
  return directly(url, async (connection) => {
    const { dead } = streamNames(prefix);
    const manager = await jetstreamManager(connection);
    const filter = `${prefix}.dlq.${topic}-group`;
    const made = await manager.consumers.add(dead, { ack_policy: AckPolicy.None, filter_subject: filter });
    const consumer = await jetstream(connection).consumers.get(dead, made.name);
    const found: BrokerDeadLetter[] = [];
    for (let left = made.num_pending; left > 0; left--) {
      const next = await consumer.next({ expires: 1_000 });
      if (next !== null) found.push({ body: next.data, headers: fromNatsHeaders(next.headers) });
    }
    await manager.consumers.delete(dead, made.name);
    return found;
  });
}
