import pg from "pg";
import { createBus, event } from "sagabox";
import { z } from "zod";
import { createDatabase } from "../../support/database.ts";
import { Load } from "../support/load.ts";
import { TroubledBroker } from "../support/troubled-broker.ts";
import { local, type Situation } from "./situation.ts";

const Sold = event("ticket.sold", { schema: z.object({ n: z.number() }) });
const SIZE = 8;

/** A service that shares its pool with code that keeps every connection. */
export async function poolExhausted(): Promise<Situation> {
  const database = await createDatabase({ migrated: true, leakGuard: false });
  const pool = new pg.Pool({ connectionString: database.url, max: SIZE });
  pool.on("error", () => undefined);
  const bus = createBus({
    service: "kiosk",
    database: pool,
    transport: new TroubledBroker(),
    log: false,
    lease: "3s",
    outbox: { optimistic: false }, // what was leased and cannot be settled would wait for the end of its lease
  });
  bus.on(Sold, { consumer: "till" }, () => undefined);
  const { port } = await bus.run({ port: 0 });
  let n = 0;
  const load = new Load(200, () => bus.transaction((tx) => tx.publish(Sold, { n: ++n })));
  const hog = new Hog(pool);
  return {
    alerts: ["DatabasePoolExhausted"],
    targets: { kiosk: local(port) },
    cause: async () => hog.take(),
    repair: async () => hog.giveBack(),
    end: async () => {
      hog.giveBack();
      await load.stop();
      await bus.stop();
      await pool.end();
      await database.drop();
    },
  };
}

/** Takes every connection it can get, some of them as soon as others give them back. */
class Hog {
  readonly #kept: pg.PoolClient[] = [];
  readonly #pool: pg.Pool;
  #takes = false;

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  take(): void {
    this.#takes = true;
    for (let i = 0; i < SIZE; i++) void this.#pool.connect().then((client) => this.#keep(client));
  }

  giveBack(): void {
    this.#takes = false;
    for (const client of this.#kept.splice(0)) client.release();
  }

  #keep(client: pg.PoolClient): void {
    if (this.#takes) this.#kept.push(client);
    else client.release();
  }
}
