// While upkeep holds a table lock its connection goes silent. Publishers must not wait for that connection.
import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { anOutgoing, outboxDatabase } from "../../../test/support/relays.ts";
import { Wire } from "../../../test/support/wire.ts";
import { pgDatabase } from "../../storage/index.ts";
import { dailyTables, ensurePartitions, partition, PartitionKeeper } from "./history.ts";
import { republish } from "./republish.ts";

async function setup() {
  const parts = await outboxDatabase();
  const wire = await Wire.to(parts.url);
  onTestFinished(() => wire.close());
  const behindWire = new pg.Pool({ connectionString: wire.url, max: 2 });
  behindWire.on("error", () => undefined);
  onTestFinished(() => behindWire.end());
  /** Resolves when a session is open that ran this, and whose transaction has not ended. */
  const lockHeld = () =>
    expect
      .poll(
        async () =>
          (
            await parts.rows(
              `select 1 from pg_locks join pg_stat_activity using (pid)
                where datname = current_database() and state = 'idle in transaction' and granted
                  and mode in ('AccessExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock')
                  and relation in (select oid from pg_class where relname in ('message_default', 'outbox'))`,
            )
          ).length,
        { timeout: 60_000 },
      )
      .toBeGreaterThan(0);
  /** Publishes with a limit that is far below what a silent connection takes to be noticed, and above ours. */
  const publish = async (): Promise<void> => {
    const tx = await parts.database.begin({ lockTimeoutMs: 30_000 });
    await parts.writer.write(tx, [anOutgoing()]);
    await tx.commit();
  };
  return { ...parts, wire, slow: pgDatabase(behindWire), lockHeld, publish };
}

test("publishers go on when the connection of an attach falls silent", { timeout: 120_000 }, async () => {
  const { wire, slow, rows, lockHeld, publish } = await setup();
  const [{ today } = { today: "" }] = await rows<{ today: string }>(
    "select (clock_timestamp() at time zone 'utc')::date::text as today",
  );
  const part = partition(dailyTables[0], today);
  wire.deafenAfter("in access exclusive mode");
  const attached = new PartitionKeeper(slow, "sagabox").attach(part);
  const failure = expect(attached).rejects.toThrow();
  await lockHeld();
  await publish();
  wire.cut();
  await failure;
});

test("publishers go on when the connection of a republish falls silent", { timeout: 120_000 }, async () => {
  const { database, wire, slow, lockHeld, publish, rows } = await setup();
  await ensurePartitions(database, "sagabox");
  await publish();
  await rows("delete from sagabox.outbox");
  wire.deafenAfter("outbox_keep_writers_out");
  const window = { from: new Date(0), to: new Date(Date.now() + 60_000) };
  const failure = expect(republish(slow, "sagabox", window)).rejects.toThrow();
  await lockHeld();
  await publish();
  wire.cut();
  await failure;
});
