// A drain whose handler gets slower and slower, and never ends with the 20th order. Run, and killed, by drain.pg.test.ts.
import { z } from "zod";
import { createBus, event } from "../../src/index.ts";

const [url = ""] = process.argv.slice(2);
const schema = z.object({ n: z.number(), key: z.string().optional() });
const Placed = event("drain.placed", { schema, key: ({ key = "k" }) => key });

const bus = createBus({ service: "shop", database: url, worker: "victim", log: false, lease: "1s" });
bus.on(Placed, { consumer: "books", concurrency: 2 }, async ({ data }, { tx }) => {
  await tx.query("insert into effect (what, n, key) values ('booked', $1, $2)", [data.n, data.key]);
  await tx.query("select pg_sleep($1)", [data.n < 20 ? data.n / 100 : 600]);
});
await bus.drain({ deadline: "10m" });
