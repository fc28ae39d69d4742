import { expect, test } from "vitest";
import { z } from "zod";
import { event } from "../message/index.ts";
import { consumers } from "../../test/support/consumers.ts";
import { aMessage } from "../../test/support/messages.ts";

const OrderPlaced = event("order.placed", { schema: z.object({ n: z.number().optional() }) });

test.each([
  ["alone", {}],
  ["in a batch", { batch: { size: 10, wait: 20 } }],
])(
  "%s, a handler whose failures never count as attempts is retried with growing waits, and loses nothing",
  async (_, batch) => {
    const harness = await consumers();
    let broken = true;
    const retry = { firstDelay: 1, factor: 10, maxDelay: 200, maxAttempts: 2 } as const;
    const classify = () => "infrastructure" as const;
    harness.registry.on(OrderPlaced, { consumer: "billing", retry, classify, ...batch }, () => {
      if (broken) throw new Error("the rates are not there yet");
    });
    await harness.start();
    await harness.publish(aMessage({ id: "a" }), aMessage({ id: "b" }));
    await harness.observer.until("consumer.retried", 8);
    broken = false;
    const told = harness.observer.of("consumer.retried");
    expect(told.filter(({ attempt, countsAsAttempt }) => attempt !== 1 || countsAsAttempt)).toEqual([]);
    // Drawn from up to 1, 10, 100, 200 ms: a flat wait would never be longer than the first.
    expect(Math.max(...told.map(({ delayMs }) => delayMs))).toBeGreaterThan(1);
    await harness.observer.until("consumer.processed", 2);
    expect(harness.observer.of("dead_letter.buried")).toEqual([]);
  },
);
