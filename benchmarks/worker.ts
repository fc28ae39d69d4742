// A relay in a process of its own: started by the measurements that need one, with its instructions in the first argument.
import { createBus } from "../src/index.ts";
import type { Observer } from "../src/telemetry/index.ts";
import { noopTransport } from "./product/noop-transport.ts";
import type { WorkerOrder, WorkerReport } from "./product/worker-process.ts";

const order = JSON.parse(process.argv[2] ?? "{}") as WorkerOrder;
const report = (said: WorkerReport): void => {
  if (process.connected) process.send?.(said);
};

let lanes = 0;
const emit: Observer["emit"] = (name, fields) => {
  const { count = 0, lanes: moved = 0 } = fields as { count?: number; lanes?: number };
  if (name === "relay.published") report({ kind: "settled", count, rssBytes: process.memoryUsage.rss() });
  if (!name.startsWith("lanes.")) return;
  lanes += name === "lanes.gained" ? moved : -moved;
  report({ kind: "lanes", lanes });
};

const bus = createBus({
  service: "bench",
  database: order.url,
  log: "error",
  observers: [{ emit }],
  transport: noopTransport({
    latencyMs: order.latencyMs,
    onPublish: (batch) => {
      if (!order.reportIds) return;
      const atNs = String(process.hrtime.bigint());
      report({ kind: "publishing", ids: batch.map(({ id }) => id), atNs });
    },
  }),
});
await bus.run();

// The parent process says when to stop. Without a parent there is nothing left to do.
const stop = (): void => void bus.stop().then(() => process.exit(0));
process.once("message", stop);
process.once("disconnect", stop);
