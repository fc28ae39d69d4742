import { expect, inject, test } from "vitest";
import { caseTitle } from "../../../test/support/case-title.ts";
import { deadLettersOf, putBytes } from "../../../test/brokers/nats/stranger.ts";
import { wireTo, type Wire } from "../../../test/brokers/nats/wire.ts";
import { exerciseTransport } from "../../testing/index.ts";
import type { Transport } from "../../transport/index.ts";
import { nats } from "./index.ts";

const found = inject("nats");
const missing = "missing" in found ? found.missing : undefined;
const url = "url" in found ? found.url : "";

const prefix = "exercise";

async function make(lease: number) {
  const wires = new Map<Transport, Wire>();
  const another = async () => {
    const wire = await wireTo(url);
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

const { capabilities } = nats();
const named = (name: string, run: () => Promise<void>): void =>
  test.skipIf(missing !== undefined)(caseTitle(name, "B4"), run);

// With times longer than any case waits, whatever arrives was given back and did not just run out.
const skipped = exerciseTransport({ test: named }, () => make(60_000), {
  capabilities,
  offers: ["cutConnections", "putForeign", "deadLetters"],
});

exerciseTransport(
  {
    test: (name, run) =>
      skipped.some((left) => left.name === name && left.reason.startsWith("no process")) && named(name, run),
  },
  () => make(1_500),
  { capabilities, offers: ["abandon"] },
);

test("B1, B4: all that is left out is what streams never do, ordered retries and, with a long lease, a death", () => {
  expect(new Set(skipped.map(({ reason }) => reason))).toEqual(
    new Set([
      "it does not claim rejectsUnrouted",
      "it does not claim ordersRetries",
      "no process of it can die alone",
    ]),
  );
});
