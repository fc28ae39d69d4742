import { ParkingTransport } from "../../src/parking/index.ts";
import { pgDatabase } from "../../src/storage/index.ts";
import type { TransportUnderTest } from "../../src/testing/index.ts";
import type { Transport } from "../../src/transport/index.ts";
import { postgres } from "../../src/transports/postgres/index.ts";
import { createDatabase, cutConnections } from "./database.ts";
import { RecordingObserver } from "./recording-observer.ts";
import { ScriptedDatabase } from "./scripted-database.ts";

/** What is not asked of a broker with parking, and why. */
export const ofParking = {
  "retried deliveries count towards the prefetch too": "parked messages have a prefetch of their own",
};

/** Creates processes at one broker, each with its keyed retries parked in the same database. */
export async function parkingHarness(broker: () => Promise<Transport>, leaseMs = 60_000) {
  const temporary = await createDatabase({ max: 40, migrated: true });
  const opened = new Map<Transport, { readonly broker: Transport; readonly database: ScriptedDatabase }>();
  const another = async (): Promise<Transport> => {
    const tables = postgres({ pollInterval: 50 });
    const observer = new RecordingObserver();
    const database = new ScriptedDatabase(pgDatabase(temporary.pool));
    tables.attach({ database, schema: "sagabox", channel: "c", leaseMs, observer });
    const inner = await broker();
    const transport = new ParkingTransport(inner, tables, observer);
    opened.set(transport, { broker: inner, database });
    return transport;
  };
  return {
    pool: temporary.pool,
    transport: await another(),
    another,
    cutDatabase: () => cutConnections(temporary),
    /** Cuts the process off its tables; its own transport at the broker is left to the caller. */
    silence: (transport: Transport): Transport | undefined => {
      opened.get(transport)?.database.silence();
      return opened.get(transport)?.broker;
    },
    close: async (): Promise<void> => {
      for (const [transport, { database }] of opened) {
        database.letGo();
        await transport.close();
      }
      await temporary.drop();
    },
  };
}

/** Creates such processes at a broker of the conformance suite, with its faults. */
export async function withParking(broker: TransportUnderTest, leaseMs: number): Promise<TransportUnderTest> {
  let first: Transport | undefined = broker.transport;
  const harness = await parkingHarness(async () => {
    const next = first ?? (await broker.another());
    first = undefined;
    return next;
  }, leaseMs);
  return {
    ...broker,
    ...harness,
    abandon: (transport) => {
      const alone = harness.silence(transport);
      if (alone !== undefined) broker.abandon?.(alone);
    },
    cutConnections: async () => {
      await Promise.all([broker.cutConnections?.(), harness.cutDatabase()]);
    },
    close: async () => {
      await harness.close();
      await broker.close();
    },
  };
}
