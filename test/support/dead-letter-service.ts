import { createBus, event, type Bus } from "sagabox";
import { z } from "zod";

const Placed = event("order.placed", {
  schema: z.object({ id: z.string(), total: z.number() }),
  key: ({ id }) => id,
});

/** An application as the command line loads it to learn its contracts; it is never run, so it needs no database. */
export default function application(): Bus {
  const bus = createBus({ service: "shop", database: "postgres://user@127.0.0.1:1/none", log: false });
  bus.on(Placed, { consumer: "billing" }, () => undefined);
  return bus;
}
