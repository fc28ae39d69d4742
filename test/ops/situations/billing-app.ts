// The application that alerts.test.ts runs as a worker process of its own and in its own process.
import { createBus, event, type Bus } from "sagabox";
import { z } from "zod";

export const Billed = event("order.billed", {
  schema: z.object({ n: z.number() }),
  key: ({ n }) => `order-${n}`,
});
export const Slow = event("report.asked", {
  schema: z.object({ n: z.number() }),
  key: ({ n }) => `report-${n}`,
});

/** Whether reports never end. */
export const reports = { hang: process.env["ANSWER"] !== "yes" };

export default function application(database = process.env["DATABASE_URL"] ?? ""): Bus {
  const bus = createBus({ service: "billing", database, log: false, lease: "8s" });
  bus.on(Billed, { consumer: "books", from: "beginning" }, () => undefined);
  // In the worker process a report hangs until that is killed.
  const deadline = process.env["WORKER_ID"] === "remote" ? "30s" : "100ms";
  const options = { consumer: "reports", from: "beginning", deadline, concurrency: 4 } as const;
  bus.on(
    Slow,
    { ...options, retry: { firstDelay: 2_000, maxDelay: 2_000, maxAttempts: 1_000 } },
    async () => {
      if (reports.hang) await new Promise(() => undefined);
    },
  );
  return bus;
}
