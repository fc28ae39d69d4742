import { expect, test } from "vitest";
import { createDatabase } from "../../../test/support/database.ts";
import { RecordingObserver } from "../../../test/support/recording-observer.ts";
import { ScriptedDatabase } from "../../../test/support/scripted-database.ts";
import { migrateUp, pgDatabase } from "../../storage/index.ts";
import { exerciseTransport } from "../../testing/index.ts";
import type { Transport } from "../../transport/index.ts";
import { postgres } from "./index.ts";

async function make() {
  const temporary = await createDatabase({ max: 40 });
  const { pool } = temporary;
  await migrateUp(pgDatabase(pool), "sagabox");
  const processes = new Map<Transport, ScriptedDatabase>();
  const another = async () => {
    const database = new ScriptedDatabase(pgDatabase(pool));
    const transport = postgres({ pollInterval: 50 });
    transport.settleIn({
      database,
      schema: "sagabox",
      channel: "c",
      leaseMs: 1_000,
      observer: new RecordingObserver(),
    });
    processes.set(transport, database);
    return transport;
  };
  return {
    transport: await another(),
    another,
    abandon: (transport: Transport) => processes.get(transport)?.silence(),
    close: async () => {
      for (const [transport, database] of processes) {
        database.letGo();
        await transport.close();
      }
      await temporary.drop();
    },
  };
}

const skipped = exerciseTransport({ test }, make, { capabilities: postgres().capabilities, abandons: true });

test("the whole suite is asked of the Postgres transport", () => {
  expect(skipped).toEqual([]);
});
