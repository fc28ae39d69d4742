import { expect, test } from "vitest";
import { caseTitle } from "../../../test/support/case-title.ts";
import { createDatabase } from "../../../test/support/database.ts";
import { RecordingObserver } from "../../../test/support/recording-observer.ts";
import { ScriptedDatabase } from "../../../test/support/scripted-database.ts";
import { pgDatabase } from "../../storage/index.ts";
import { exerciseTransport } from "../../testing/index.ts";
import type { Transport } from "../../transport/index.ts";
import { postgres } from "./index.ts";

async function make(leaseMs: number) {
  const temporary = await createDatabase({ max: 40, migrated: true });
  const { pool } = temporary;
  const processes = new Map<Transport, ScriptedDatabase>();
  const another = async () => {
    const database = new ScriptedDatabase(pgDatabase(pool));
    const transport = postgres({ pollInterval: 50 });
    transport.settleIn({
      database,
      schema: "sagabox",
      channel: "c",
      leaseMs,
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

const { capabilities } = postgres();
const named = (name: string, run: () => Promise<void>): void => test(caseTitle(name, "B5"), run);

// With a lease longer than any case waits, whatever arrives was given back and did not just run out.
const skipped = exerciseTransport({ test: named }, () => make(60_000), { capabilities });

exerciseTransport(
  {
    test: (name, run) =>
      skipped.some((left) => left.name === name && left.reason.startsWith("no process")) && named(name, run),
  },
  () => make(1_000),
  { capabilities, abandons: true },
);

test("B1, B5: all that is left out with a long lease is what tables never do and the death of a process", () => {
  expect(skipped.map(({ reason }) => reason)).toEqual([
    "it does not claim rejectsUnrouted",
    "no process of it can die alone",
  ]);
});
