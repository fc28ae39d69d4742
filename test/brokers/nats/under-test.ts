import type { TransportUnderTest } from "../../../src/testing/index.ts";
import type { Transport } from "../../../src/transport/index.ts";
import { nats } from "../../../src/transports/nats/index.ts";
import { sharedUrl as url } from "./harness.ts";
import { deadLettersOf, putBytes } from "./stranger.ts";
import { Wire } from "../../support/wire.ts";

const prefix = "exercise";

/** Processes at the server of the run, for the conformance suite. */
export async function underTest(lease: number): Promise<TransportUnderTest> {
  const wires = new Map<Transport, Wire>();
  const another = async () => {
    const wire = await Wire.to(url);
    const transport = nats({ servers: wire.url, prefix, lease, ackWait: lease });
    wires.set(transport, wire);
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
    deadLetters: (topic: string) => deadLettersOf(url, prefix, topic),
    close: async () => {
      for (const [transport, wire] of wires) {
        await transport.close();
        await wire.close();
      }
    },
  };
}
