import { createBus, event, saga } from "sagabox";
import { z } from "zod";
import { createDatabase } from "../../support/database.ts";
import { Load } from "../support/load.ts";
import { TroubledBroker } from "../support/troubled-broker.ts";
import { local, type Situation } from "./situation.ts";

const Ground = event("flour.ground", { schema: z.object({ n: z.number() }) });
const batch = saga("batch", { version: 1, input: z.object({ id: z.string() }), key: ({ id }) => id })
  .tx("weigh", () => 1)
  .noUndo("it only reads");

/** A mill that grinds all the time and in which nothing ever goes wrong. */
export async function allWell(): Promise<Situation> {
  const database = await createDatabase({ migrated: true, leakGuard: false });
  const bus = createBus({
    service: "mill",
    database: database.url,
    transport: new TroubledBroker(),
    log: false,
  });
  bus.on(Ground, { consumer: "bakery", from: "beginning" }, () => undefined);
  bus.register(batch);
  const { port } = await bus.run({ port: 0 });
  let n = 0;
  const grind = (): Promise<void> =>
    bus.transaction(async (tx) => {
      for (let i = 0; i < 5; i++) await tx.publish(Ground, { n: ++n });
      if (n % 25 === 0) await bus.start(tx, batch, { id: String(n) });
    });
  const load = new Load(100, grind);
  return {
    alerts: [],
    targets: { mill: local(port) },
    cause: async () => undefined,
    repair: async () => undefined,
    end: async () => {
      await load.stop();
      await bus.stop();
      await database.drop();
    },
  };
}
