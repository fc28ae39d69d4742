// A worker whose first handlers wait until their deadline has passed. Run by standstill.pg.test.ts as a process of its
// own, which is stopped and woken up again.
import { createBus, event } from "sagabox";
import { z } from "zod";

const [url = ""] = process.argv.slice(2);
const bus = createBus({ service: "standstill", database: url, lease: "1s" });
const Happened = event("happened", { schema: z.object({ n: z.number(), waits: z.boolean() }) });
const seen = new Set<string>();

const options = {
  consumer: "reader",
  concurrency: 16,
  deadline: "900ms",
  retry: { firstDelay: 50 },
} as const;
bus.on(Happened, options, async ({ id, data }, { tx, signal }) => {
  if (data.waits && !seen.has(id)) {
    seen.add(id);
    process.stdout.write("waiting\n");
    await new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("too late"))));
  }
  await tx.query("insert into effect (n) values ($1)", [data.n]);
});

process.once("SIGTERM", () => void bus.stop());
await bus.run();
process.stdout.write("ready\n");
