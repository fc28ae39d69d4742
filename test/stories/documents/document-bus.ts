import { createBus, event, type BusOptions } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import { onTestFinished } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../support/database.ts";
import { RecordingObserver } from "../../support/recording-observer.ts";

export const TestEvent = event("test.event", { schema: z.object({ attempt: z.number() }) });

/** A service of the documents' kind: one database, one broker, and what an operator would look at. */
export async function documentBus(outbox: BusOptions["outbox"] = {}) {
  const { pool } = await temporaryDatabase();
  const transport = new MemoryTransport();
  const observer = new RecordingObserver();
  const another = (worker: string) => {
    const bus = createBus({
      service: "orders",
      database: pool,
      transport,
      worker,
      outbox,
      lease: "1s",
      log: false,
      observers: [observer],
    });
    onTestFinished(async () => {
      await bus.stop();
    });
    return bus;
  };
  const bus = another("worker-1");
  await bus.migrate();
  const rows = async (sql: string): Promise<Record<string, unknown>[]> =>
    (await pool.query<Record<string, unknown>>(sql)).rows;
  const statuses = async (): Promise<unknown[]> =>
    (await rows("select status from sagabox.outbox_events order by created_at")).map((row) => row["status"]);
  return { pool, transport, observer, bus, another, rows, statuses };
}
