import { expect, onTestFinished, test } from "vitest";
import { relays, until } from "../../test/support/relays.ts";
import { defineStatement } from "../storage/index.ts";
import { laneSettings } from "./options.ts";
import { LANES, ownershipStatements } from "./statements.ts";
import { LaneOwnership } from "./ownership.ts";

test("rule 4: a member that began to acquire lanes before another one joined takes none of its lanes", async () => {
  const { database, pool, observer, rows } = await relays();
  const member = async (worker: string): Promise<LaneOwnership> => {
    const settings = laneSettings({ lease: 60_000 });
    const scope = { scope: 0, scopeName: "outbox" };
    const ownership = new LaneOwnership({
      database,
      schema: "sagabox",
      ...scope,
      worker,
      settings,
      observer,
    });
    onTestFinished(() => ownership.stop());
    await ownership.start();
    return ownership;
  };
  // The statement has its snapshot and blocks before it reads the lanes.
  const { acquire } = ownershipStatements("sagabox");
  const condition = /where lane\.scope = \$2::integer(?=\s+and \(lane\.owner is null)/;
  const text = acquire.text.replace(condition, "$& and (select pg_advisory_xact_lock(7) is not null)");
  expect(text).not.toBe(acquire.text);
  const standing = defineStatement("standing", text);
  const session = await database.session("standing");
  onTestFinished(() => session.release());
  database.once(acquire.name, (_, params) => session.run(standing, params));
  const gate = await pool.connect();
  await gate.query("select pg_advisory_lock(7)");
  const waiting = "select count(*)::int as n from pg_locks where locktype = 'advisory' and not granted";

  const first = await member("w1");
  await expect.poll(async () => (await rows(waiting))[0]).toEqual({ n: 1 });
  const second = await member("w2");
  await until(() => second.size === LANES / 2);
  await gate.query("select pg_advisory_unlock(7)");
  gate.release();

  await until(() => first.size > 0);
  const both = first.lanes().filter((lane) => second.claim(lane) !== undefined);
  expect([both, first.size]).toEqual([[], LANES / 2]);
});
