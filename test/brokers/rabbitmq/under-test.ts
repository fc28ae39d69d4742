import { randomBytes } from "node:crypto";
import type { TransportUnderTest } from "../../../src/testing/index.ts";
import type { Transport } from "../../../src/transport/index.ts";
import { rabbitmq } from "../../../src/transports/rabbitmq/index.ts";
import { toTextHeaders } from "../../../src/transports/rabbitmq/properties.ts";
import { Wires } from "../../support/wire.ts";
import { connectForeignClient } from "./foreign-client.ts";

const maxBytes = 4 * 1_048_576;

/** Processes for the conformance suite. `url` holds one address, or the addresses of a cluster's nodes separated by commas. */
export async function underTest(url: string, queues: "quorum" | "classic"): Promise<TransportUnderTest> {
  const prefix = `t${randomBytes(5).toString("hex")}`;
  const { putBytes, lookInto } = connectForeignClient(url.split(",", 1).join());
  const processes = new Map<Transport, Wires>();
  const another = async () => {
    const wires = await Wires.to(url);
    const transport = rabbitmq({ url: wires.urls, prefix, queues, maxBytes, rebalanceInterval: "200ms" });
    processes.set(transport, wires);
    return transport;
  };
  return {
    transport: await another(),
    another,
    abandon: (transport: Transport) => processes.get(transport)?.sever(),
    cutConnections: () => {
      for (const wires of processes.values()) wires.cut();
    },
    putForeign: (topic: string, body: Uint8Array) =>
      putBytes(`${prefix}.event.exercise`, `stranger.${topic}.info`, body),
    deadLetters: async (topic: string) => {
      const found = await lookInto(`${prefix}.dlq.${topic}-group`);
      return found.map(({ content, properties }) => ({
        body: content,
        headers: toTextHeaders(properties.headers),
      }));
    },
    close: async () => {
      for (const [transport, wires] of processes) {
        await transport.close();
        await wires.close();
      }
    },
  };
}

export const { capabilities } = rabbitmq({ url: "amqp://127.0.0.1", maxBytes });
