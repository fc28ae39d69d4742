import { ParkingTransport } from "../../src/parking/index.ts";
import { pgDatabase } from "../../src/storage/index.ts";
import type { Transport } from "../../src/transport/index.ts";
import { postgres } from "../../src/transports/postgres/index.ts";
import { createDatabase, cutConnections } from "./database.ts";
import { RecordingObserver } from "./recording-observer.ts";

/** What is not asked of a broker with parking, and why. */
export const ofParking = {
  "what comes back from a retry counts against the prefetch too": "the lot has a prefetch of its own",
};

/** Processes at one broker, each with its keyed retries parked in the same database. */
export async function parkingHouse(broker: () => Promise<Transport>, leaseMs = 60_000) {
  const temporary = await createDatabase({ max: 40, migrated: true });
  const opened: Transport[] = [];
  const another = async (): Promise<Transport> => {
    const tables = postgres({ pollInterval: 50 });
    const observer = new RecordingObserver();
    const database = pgDatabase(temporary.pool);
    tables.settleIn({ database, schema: "sagabox", channel: "c", leaseMs, observer });
    const transport = new ParkingTransport(await broker(), tables, observer);
    opened.push(transport);
    return transport;
  };
  return {
    pool: temporary.pool,
    transport: await another(),
    another,
    cutDatabase: () => cutConnections(temporary),
    close: async (): Promise<void> => {
      for (const transport of opened) await transport.close();
      await temporary.drop();
    },
  };
}
