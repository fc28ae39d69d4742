// A whole worker with the settings it has by default, which never finishes what it begins. Run, and killed, by
// killed-process.pg.test.ts as a process of its own.
import { z } from "zod";
import { createBus, event } from "../../src/index.ts";

const [url = ""] = process.argv.slice(2);
const Placed = event("order.placed", { schema: z.object({ n: z.number() }), key: ({ n }) => String(n) });

const bus = createBus({ service: "shop", database: url, worker: "victim", log: false });
bus.on(Placed, { consumer: "books" }, async ({ data }, { tx }) => {
  await tx.query("insert into effect (n, worker) values ($1, 'victim')", [data.n]);
  await tx.query("select pg_sleep(600)");
});
await bus.run();
