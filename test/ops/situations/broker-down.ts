import { createBus, event } from "sagabox";
import { z } from "zod";
import { createDatabase } from "../../support/database.ts";
import { Load } from "../support/load.ts";
import { TroubledBroker } from "../support/troubled-broker.ts";
import { local, type Situation } from "./situation.ts";

const Placed = event("order.placed", {
  schema: z.object({ n: z.number() }),
  key: ({ n }) => `order-${n}`,
});

/** A shop whose broker goes away while it sells; a rush of orders comes meanwhile. */
export async function brokerDown(): Promise<Situation> {
  const database = await createDatabase({ migrated: true, leakGuard: false });
  const transport = new TroubledBroker();
  const breaker = { cooldown: "500ms", maxCooldown: "1s" } as const;
  const bus = createBus({
    service: "shop",
    database: database.url,
    transport,
    log: false,
    outbox: { breaker },
  });
  bus.on(Placed, { consumer: "books", from: "beginning" }, () => undefined);
  const { port } = await bus.run({ port: 0 });
  let n = 0;
  const sell = (count: number): Promise<unknown> =>
    bus.transaction(async (tx) => {
      for (let i = 0; i < count; i++) await tx.publish(Placed, { n: ++n });
    });
  const load = new Load(50, () => sell(2));
  return {
    alerts: [
      "OutboxHighLag",
      "OutboxWorkerInactive",
      "OutboxOldMessages",
      "OutboxOptimisticFailures",
      "TransportBreakerOpen",
    ],
    targets: { shop: local(port) },
    cause: async () => {
      transport.goDown();
      await sell(1_100);
    },
    repair: async () => transport.comeUp(),
    end: async () => {
      await load.stop();
      await bus.stop();
      await database.drop();
    },
  };
}
