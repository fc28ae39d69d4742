import type { TransportUnderTest } from "../../../src/testing/index.ts";
import type { Transport } from "../../../src/transport/index.ts";
import { nats } from "../../../src/transports/nats/index.ts";
import { readDeadLetters, putBytes } from "./foreign-client.ts";
import { Wires } from "../../support/wire.ts";

const prefix = "exercise";

/**
 * Processes for the conformance suite. `url` holds one address, or the addresses of a cluster's nodes separated by commas; in a
 * cluster every stream has a replica on each node.
 */
export async function underTest(url: string, lease: number): Promise<TransportUnderTest> {
  const wires = new Map<Transport, Wires>();
  const another = async () => {
    const own = await Wires.to(url);
    const replicas = own.urls.length;
    const transport = nats({ servers: own.urls, prefix, replicas, lease, ackWait: lease });
    wires.set(transport, own);
    await transport.open();
    return transport;
  };
  return {
    transport: await another(),
    another,
    abandon: (transport: Transport) => wires.get(transport)?.sever(),
    cutConnections: () => {
      for (const wire of wires.values()) wire.cut();
    },
    putForeign: (topic: string, body: Uint8Array) => putBytes(url, prefix, topic, body),
    deadLetters: (topic: string) => readDeadLetters(url, prefix, topic),
    close: async () => {
      for (const [transport, wire] of wires) {
        await transport.close();
        await wire.close();
      }
    },
  };
}
