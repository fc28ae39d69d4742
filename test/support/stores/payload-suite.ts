import { fileStore } from "sagabox/claim-check";
import type { Transport } from "sagabox";
import { expect, test } from "vitest";
import { MAX_GROWTH_MB, passed, passLargeAttachment } from "./large-attachment.ts";
import { Drawn } from "./payload-contracts.ts";
import { payloadHarness, temporaryFolder } from "./payload-harness.ts";

/** What must be true of large payloads over any broker. */
export function payloadSuite(transport: () => Transport): void {
  test("64 MB pass through in bounded memory", { timeout: 180_000 }, async () => {
    const folder = await temporaryFolder();
    const { bus } = await payloadHarness({
      transport: transport(),
      claimCheck: { store: fileStore({ folder }) },
    });
    const { grownMb, ...rest } = await passLargeAttachment(bus);
    expect(rest).toEqual(passed);
    expect(grownMb).toBeLessThan(MAX_GROWTH_MB);
  });

  test(
    "data that the broker could not carry arrives, whatever the threshold says",
    { timeout: 120_000 },
    async () => {
      const carrying = transport();
      const folder = await temporaryFolder();
      const { bus, observer } = await payloadHarness({
        transport: carrying,
        claimCheck: { store: fileStore({ folder }), threshold: 60 * 1_048_576 },
      });
      const got: number[] = [];
      bus.on(Drawn, { consumer: "archive" }, ({ data }) => void got.push(data.text.length));
      await bus.run();
      const size = Math.min(carrying.capabilities.maxBytes + 1_000, 30 * 1_048_576);
      const limit = carrying.capabilities.maxBytes - 20_000;
      await bus.transaction(async (tx) => {
        await tx.publish(Drawn, { n: 1, text: "x".repeat(size) });
        await tx.publish(Drawn, { n: 2, text: "x".repeat(limit) });
      });
      await observer.until("consumer.processed", 2);
      expect(got.toSorted((a, b) => a - b)).toEqual([limit, size]);
      expect(observer.of("payload.stored")).toHaveLength(1);
    },
  );

  test("without a store it is refused, with the way out", async () => {
    const { bus } = await payloadHarness({ transport: transport() });
    const publish = bus.transaction((tx) => tx.publish(Drawn, { n: 1, text: "x".repeat(2_000_000) }));
    await expect(publish).rejects.toMatchObject({
      code: "PAYLOAD_TOO_LARGE",
      message: expect.stringContaining("`claimCheck` of createBus") as string,
    });
  });
}
