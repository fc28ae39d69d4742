import { expect, test } from "vitest";
import { caseTitle } from "../../../test/support/broker-suites.ts";
import { createDatabase, cutConnections } from "../../../test/support/database.ts";
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
    transport.attach({
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
    cutConnections: () => cutConnections(temporary),
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
const runNamed = (name: string, run: () => Promise<void>): void => test(caseTitle(name, "B5"), run);

const skip = {
  "groups of two services with equal names each get a copy": "tables belong to one service",
};

// The lease is longer than any case waits, so a redelivery can only come from a release, not from an expired lease.
const skipped = exerciseTransport({ test: runNamed }, () => make(60_000), {
  capabilities,
  offers: ["cutConnections"],
  skip,
});

exerciseTransport(
  {
    test: (name, run) =>
      skipped.some((left) => left.name === name && left.reason.startsWith("a process of the transport")) &&
      runNamed(name, run),
  },
  () => make(1_000),
  { capabilities, offers: ["abandon"] },
);

test("B1, B5: with a long lease only the death of a process and cases that tables cannot have are skipped", () => {
  expect([...new Set(skipped.map(({ reason }) => reason))].toSorted()).toEqual([
    "a message of 268435456 bytes is too large to test",
    "a process of the transport cannot crash alone",
    "other software cannot publish to the transport",
    "tables belong to one service",
    "the transport does not support rejectsUnrouted",
    "the transport has no dead letters of its own",
    "the transport supports replays",
  ]);
});
