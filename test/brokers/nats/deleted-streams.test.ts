import { describe, expect, test } from "vitest";
import type { Message } from "../../../src/message/index.ts";
import type { Transport } from "../../../src/transport/index.ts";
import { aMessage } from "../../support/messages.ts";
import {
  connectClient,
  eventually,
  member,
  missing,
  newPrefix,
  openTransport,
  publish,
  sharedUrl,
} from "./harness.ts";

const createBatch = (name: string): Message[] =>
  Array.from({ length: 20 }, (_, n) => aMessage({ topic: "t", key: `k${n}`, id: `${name}${n}` }));

/** As the relay does: what is not published is sent again. */
async function publishAll(transport: Transport, batch: readonly Message[]): Promise<string[]> {
  const texts: string[] = [];
  let left = batch;
  await eventually(async () => {
    const outcomes = await publish(transport, ...left);
    for (const outcome of outcomes) if (outcome.kind !== "published") texts.push(outcome.error.message);
    left = left.filter((_, n) => outcomes[n]?.kind !== "published");
    return left.length === 0;
  });
  return texts;
}

describe.skipIf(missing)("streams of NATS that are deleted", () => {
  test.each([
    { name: "messages", ordered: true },
    { name: "messages", ordered: false },
    { name: "groups", ordered: true },
    { name: "retries", ordered: false },
  ])(
    "P-11: the deleted stream of $name is created again, and all arrive (ordered: $ordered)",
    async ({ name, ordered }) => {
      const prefix = newPrefix();
      const warnings: string[] = [];
      const warn = (warning: string): void => void warnings.push(warning);
      const transport = await openTransport({ servers: sharedUrl, prefix, lease: 1_000, warn });
      const reader = await member(transport, { topic: "t", ordered, receive: (delivery) => delivery.ack() });
      await publishAll(transport, createBatch("old"));
      await reader.until(20);
      const { jsm } = await connectClient();
      await jsm.streams.delete(`${prefix}_${name}`);
      const texts = await publishAll(transport, createBatch("new"));
      const all = await reader.until(20, ({ message }) => message.id.startsWith("new"));
      expect(new Set(all.map(({ message }) => message.id)).size).toBe(20);
      await eventually(() => warnings.length > 0 && reader.consumption.health().ok);
      expect(warnings).toEqual([expect.stringMatching(`Stream ${prefix}_${name} was deleted.*republish`)]);
      expect(texts.filter((text) => /JetStream is off/.test(text))).toEqual([]);
      // Retries are still carried out.
      const again = await member(transport, { topic: "t", group: "later", ordered });
      await publishAll(transport, [aMessage({ topic: "t", key: "k", id: "retried" })]);
      const [first] = await again.until(1);
      await first?.retry({ delayMs: 10, countsAsAttempt: true, error: "again" });
      await again.until(1, ({ attempt }) => attempt === 2);
    },
  );

  test("P-11: a group that is elsewhere when its stream is created again reads all that came meanwhile", async () => {
    const prefix = newPrefix();
    const options = { servers: sharedUrl, prefix, lease: 1_000, warn: () => undefined };
    const transport = await openTransport(options);
    const reader = await member(transport, {
      topic: "t",
      ordered: false,
      receive: (delivery) => delivery.ack(),
    });
    await publishAll(transport, createBatch("old"));
    await reader.until(20);
    const { jsm } = await connectClient();
    await jsm.streams.delete(`${prefix}_messages`);
    const another = await openTransport(options); // creates the stream before the reader has looked
    await publishAll(another, createBatch("new"));
    const all = await reader.until(20, ({ message }) => message.id.startsWith("new"));
    expect(new Set(all.map(({ message }) => message.id)).size).toBe(20);
  });
});
