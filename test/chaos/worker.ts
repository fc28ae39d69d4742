// A worker as a service would run it: relay and consumers, a clean stop on SIGTERM. Its instructions are in CHAOS.
import { createBus } from "sagabox";
import { HANDLERS, Happened, signedUrl, createTransport, type ChildOptions } from "./child-contract.ts";

const options = JSON.parse(process.env["CHAOS"] ?? "{}") as ChildOptions;
const bus = createBus({
  service: "chaos",
  worker: options.id,
  database: signedUrl(options.url, options.id),
  lease: options.leaseMs,
  outbox: { optimisticTimeout: options.optimisticTimeoutMs },
  ...createTransport(options),
});

for (const consumer of HANDLERS) {
  const retry = { firstDelay: 200 };
  bus.on(Happened, { consumer, retry }, async ({ id, data }, { tx, attempt }) => {
    if (attempt === 1 && Math.random() < (options.failures ?? 0)) throw new Error("failed on purpose");
    await tx.query("insert into e_effect (handler, msg_id, key, kseq, worker) values ($1, $2, $3, $4, $5)", [
      consumer,
      id,
      data.key,
      data.kseq,
      options.id,
    ]);
  });
}

process.once("SIGTERM", () => {
  void bus.stop().then(({ clean }) => {
    process.exitCode = clean ? 0 : 1;
  });
});
await bus.run();
process.stdout.write("ready\n");
