import { describe, expect, test } from "vitest";
import { brokerUrl, missing, ownPrefix } from "../../../test/brokers/rabbitmq/broker.ts";
import { lookInto, putBytes } from "../../../test/brokers/rabbitmq/stranger.ts";
import { Wire } from "../../../test/brokers/rabbitmq/wire.ts";
import { caseTitle } from "../../../test/support/case-title.ts";
import { exerciseTransport, type SkippedCase } from "../../testing/index.ts";
import type { Transport } from "../../transport/index.ts";
import { rabbitmq } from "./index.ts";
import { textHeaders } from "./properties.ts";

const maxBytes = 4 * 1_048_576;

async function make(queues: "quorum" | "classic") {
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

const { capabilities } = rabbitmq({ url: brokerUrl, maxBytes });

describe.skipIf(missing !== undefined).each(["quorum", "classic"] as const)("%s queues", (queues) => {
  const skipped: readonly SkippedCase[] = exerciseTransport(
    { test: (name, run) => test(caseTitle(name, "B3"), run) },
    () => make(queues),
    { capabilities, offers: ["abandon", "cutConnections", "putForeign", "deadLetters"] },
  );

  test("B1, B3: only what RabbitMQ does not claim is left out", () => {
    expect([...new Set(skipped.map(({ reason }) => reason))].toSorted()).toEqual([
      "it claims rejectsUnrouted",
      "it does not claim keepsUnrouted",
      "it does not claim ordersRetries",
      "it does not claim replays",
    ]);
  });
});
