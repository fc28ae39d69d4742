import pg from "pg";
import { createBus, event } from "sagabox";
import { inject } from "vitest";
import { z } from "zod";
import { createDatabase, cutConnections } from "../../support/database.ts";
import { TroubledBroker } from "../support/troubled-broker.ts";
import { local, type Situation } from "./situation.ts";

const Noted = event("entry.noted", { schema: z.object({ n: z.number() }) });

/** A ledger whose database takes no connections for a while. */
export async function databaseAway(): Promise<Situation> {
  const database = await createDatabase({ migrated: true, leakGuard: false });
  const bus = createBus({
    service: "ledger",
    database: database.url,
    transport: new TroubledBroker(),
    log: false,
  });
  bus.on(Noted, { consumer: "books" }, () => undefined);
  const { port } = await bus.run({ port: 0 });
  const allow = (yes: boolean): Promise<void> =>
    asAdmin(`alter database ${database.name} with allow_connections ${yes}`);
  return {
    alerts: ["DatabaseFailing"],
    targets: { ledger: local(port) },
    cause: async () => {
      await allow(false);
      await cutConnections(database);
    },
    repair: () => allow(true),
    end: async () => {
      await allow(true);
      await bus.stop();
      await database.drop();
    },
  };
}

async function asAdmin(sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: inject("postgresUrl") });
  await client.connect();
  await client.query(sql);
  await client.end();
}
