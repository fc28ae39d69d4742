import { describe, expect, test } from "vitest";
import { groupNames, streamNames } from "../../../src/transports/nats/topology.ts";
import { aMessage } from "../../support/messages.ts";
import {
  connectClient,
  eventually,
  member,
  missing,
  newPrefix,
  openTransport,
  ownServer,
  publish,
  sharedUrl,
} from "./harness.ts";

const DELAY_MS = 4_000;
const again = { delayMs: DELAY_MS, countsAsAttempt: true, error: "as the test asked" };
// The delay begins when the server has the copy, which is a moment after it was asked for.
const early = (began: number): number => Math.max(0, DELAY_MS - (performance.now() - began));

const consumerName = (prefix: string): string => groupNames(prefix, "test", "group").retryConsumer("t");

/** Resolves when a member has been given the copy, which it sends back at once. */
async function handedOut(prefix: string, url?: string): Promise<void> {
  const { jsm } = await connectClient(url);
  const pending = async (): Promise<number> =>
    (await jsm.consumers.info(streamNames(prefix).retries, consumerName(prefix))).num_ack_pending;
  await eventually(async () => (await pending()) === 1);
}

describe.skipIf(missing)("delays of retries at JetStream", () => {
  test("the delay of a retry holds although the member that was given the copy first has died", async () => {
    const prefix = newPrefix();
    const options = { servers: sharedUrl, prefix, ackWait: 1_000 };
    const first = await openTransport(options);
    const reader = await member(first, { topic: "t", ordered: false });
    await publish(first, aMessage({ topic: "t", id: "m" }));
    const [delivery] = await reader.until(1);
    await reader.consumption.pause();
    const began = performance.now();
    await delivery?.retry(again);
    await first.close();
    const { js } = await connectClient();
    const copies = await js.consumers.get(streamNames(prefix).retries, consumerName(prefix));
    const taken = await copies.next({ expires: 5_000 });
    expect(taken?.info.deliveryCount).toBe(1);
    const heir = await member(await openTransport(options), { topic: "t", ordered: false });
    const [late] = await heir.until(1);
    expect([late?.message.id, late?.attempt, early(began)]).toEqual(["m", 2, 0]);
    await late?.ack();
  });

  test("the delay of a retry holds although its member leaves while the server counts", async () => {
    const prefix = newPrefix();
    const options = { servers: sharedUrl, prefix, ackWait: 1_000 };
    const first = await openTransport(options);
    const reader = await member(first, { topic: "t", ordered: false });
    await publish(first, aMessage({ topic: "t", id: "m" }));
    const began = performance.now();
    await (await reader.until(1))[0]?.retry(again);
    await handedOut(prefix);
    await first.close();
    const heir = await member(await openTransport(options), { topic: "t", ordered: false });
    const [late] = await heir.until(1);
    expect([late?.message.id, early(began)]).toEqual(["m", 0]);
    await late?.ack();
  });

  test("the delay of a retry holds although the server is killed and comes back", async () => {
    const server = await ownServer();
    const prefix = newPrefix();
    const options = {
      servers: server.url,
      prefix,
      ackWait: 1_000,
      timeout: 1_000,
      lease: 2_000,
    };
    const transport = await openTransport(options);
    const reader = await member(transport, { topic: "t", ordered: false });
    await publish(transport, aMessage({ topic: "t", id: "m" }));
    const began = performance.now();
    await (await reader.until(1))[0]?.retry(again);
    await handedOut(prefix, server.url);
    await server.kill();
    await server.start();
    const [late] = await reader.until(1, ({ attempt }) => attempt === 2);
    expect([late?.message.id, early(began)]).toEqual(["m", 0]);
    await late?.ack();
  });
});
