import { createBus, type Bus, type Transport } from "sagabox";
import type pg from "pg";
import { onTestFinished } from "vitest";
import { temporaryDatabase } from "./database.ts";

export interface BrokerService {
  readonly bus: Bus;
  readonly pool: pg.Pool;
  /** Another process of the same service, on the same database. */
  readonly another: (transport: Transport) => Bus;
}

/** A service with a database of its own, which shares nothing with others but a broker. */
export async function startBrokerService(service: string, transport: Transport): Promise<BrokerService> {
  const { pool } = await temporaryDatabase({ max: 30 });
  const another = (by: Transport): Bus => {
    const bus = createBus({
      service,
      database: pool,
      transport: by,
      log: false,
      sagas: { pollInterval: 50 },
    });
    onTestFinished(async () => void (await bus.stop()));
    return bus;
  };
  const bus = another(transport);
  await bus.migrate();
  return { bus, pool, another };
}
