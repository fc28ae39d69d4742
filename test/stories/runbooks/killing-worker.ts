// A worker whose handler of one order ends the process at once, as a lack of memory or a native crash would. Run by
// killing.pg.test.ts as a process of its own.
import { createBus, event } from "sagabox";
import { z } from "zod";

const [url = ""] = process.argv.slice(2);
const Placed = event("order.placed", { schema: z.object({ id: z.string() }), key: ({ id }) => id });

const bus = createBus({ service: "shop", database: url, log: false, lease: "1s" });
bus.on(Placed, { consumer: "books", from: "beginning" }, async ({ data }, { tx }) => {
  await tx.query("insert into booked (id) values ($1)", [data.id]);
  if (data.id === "deadly") process.kill(process.pid, "SIGKILL");
});
await bus.run();
