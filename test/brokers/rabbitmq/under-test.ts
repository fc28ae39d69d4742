import type { TransportUnderTest } from "../../../src/testing/index.ts";
import type { Transport } from "../../../src/transport/index.ts";
import { rabbitmq } from "../../../src/transports/rabbitmq/index.ts";
import { textHeaders } from "../../../src/transports/rabbitmq/properties.ts";
import { brokerUrl, ownPrefix } from "./broker.ts";
import { lookInto, putBytes } from "./stranger.ts";
import { Wire } from "../../support/wire.ts";

const maxBytes = 4 * 1_048_576;

/** Processes at the broker of the run, for the conformance suite. */
export async function underTest(queues: "quorum" | "classic"): Promise<TransportUnderTest> {
  const prefix = ownPrefix();
  const processes = new Map<Transport, Wire>();
  const another = async () => {
    const wire = await Wire.to(brokerUrl);
    const transport = rabbitmq({ url: wire.url, prefix, queues, maxBytes, rebalanceInterval: "200ms" });
    processes.set(transport, wire);
    return transport;
  };
  return {
    transport: await another(),
    another,
    abandon: (transport: Transport) => processes.get(transport)?.sever(),
    cutConnections: () => {
      for (const wire of processes.values()) wire.cut();
    },
    putForeign: (topic: string, body: Uint8Array) =>
      putBytes(`${prefix}.event.exercise`, `stranger.${topic}.info`, body),
    deadLetters: async (topic: string) => {
      const found = await lookInto(`${prefix}.dlq.${topic}-group`);
      return found.map(({ content, properties }) => ({
        body: content,
        headers: textHeaders(properties.headers),
      }));
    },
    close: async () => {
      for (const [transport, wire] of processes) {
        await transport.close();
        await wire.close();
      }
    },
  };
}

export const { capabilities } = rabbitmq({ url: brokerUrl, maxBytes });
