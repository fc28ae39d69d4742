import { createBus, event } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../support/database.ts";

const Scanned = event("claim.scanned", { schema: z.object({ scan: z.string() }) });

test("rule 13: the first large payloads on every connection of a pool at once wait for no other connection", async () => {
  const { pool } = await temporaryDatabase({ max: 2, migrated: true });
  const bus = createBus({ service: "scans", database: pool, log: false, claimCheck: { threshold: 1_024 } });
  onTestFinished(async () => void (await bus.stop()));
  let inside = 0;
  let both: () => void = () => undefined;
  const meeting = new Promise<void>((resolve) => (both = resolve));
  const publish = () =>
    bus.transaction(async (tx) => {
      await tx.query("select 1");
      if (++inside === 2) both();
      await meeting; // each has its connection now, and there is no third
      return tx.publish(Scanned, { scan: "x".repeat(5_000) });
    });
  const published = await Promise.all([publish(), publish()]);
  expect(published.map(({ written }) => written)).toEqual([true, true]);
  const { rows } = await pool.query("select count(*)::integer as blobs from sagabox.blob");
  expect(rows).toEqual([{ blobs: 2 }]);
});
