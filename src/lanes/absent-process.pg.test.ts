import { expect, onTestFinished, test } from "vitest";
import { relays, until } from "../../test/support/relays.ts";
import { SessionHolder } from "../storage/index.ts";
import { laneSettings } from "./options.ts";
import { LaneOwnership } from "./ownership.ts";
import { LANES } from "./share.ts";

async function setup() {
  const house = await relays();
  const { pool } = house;
  await pool.query(
    "insert into sagabox.relay_lane (lane, scope) select lane, 1 from generate_series(256, 511) as lane",
  );
  /** The number of a session, which goes on or has ended. */
  const sessionOf = async (fate: "open" | "ended"): Promise<number> => {
    const client = await pool.connect();
    const { rows } = await client.query<{ pid: number }>("select pg_backend_pid() as pid");
    const pid = rows[0]?.pid ?? 0;
    if (fate === "open") onTestFinished(() => client.release());
    else client.release(true);
    const there = "select count(*)::int as n from pg_stat_activity where pid = $1";
    await until(async () => (await house.rows(there, [pid]))[0]?.["n"] === (fate === "open" ? 1 : 0));
    return pid;
  };
  /** A member of another process, with an hour of lease and all lanes of its scope. */
  const elsewhere = async (id: string, process: string | null, scope: number, backend: number | null) => {
    await pool.query(
      `insert into sagabox.member (id, scope, worker, lease_until, process, backend)
       values ($1, $2, $1, clock_timestamp() + interval '1 hour', $3, $4)`,
      [id, scope, process, backend],
    );
    await pool.query("update sagabox.relay_lane set owner = $1, token = 't', fence = 1 where scope = $2", [
      id,
      scope,
    ]);
  };
  const member = async (scope = 0) => {
    const holder = new SessionHolder(house.database, "member", {});
    const ownership = new LaneOwnership({
      database: house.database,
      session: () => holder.get(),
      schema: "sagabox",
      scope,
      scopeName: "outbox",
      worker: "here",
      settings: laneSettings({ lease: 1_000 }),
      observer: house.observer,
    });
    onTestFinished(async () => {
      await ownership.stop();
      await holder.close();
    });
    await ownership.start();
    return ownership;
  };
  /** Until it has looked around for longer than it waits for anybody. */
  const lookedAround = async () => {
    const renewed = async (): Promise<string> =>
      JSON.stringify(await house.rows("select lease_until from sagabox.member where worker = 'here'"));
    for (let times = 0; times < 4; times++) {
      const before = await renewed();
      await until(async () => (await renewed()) !== before);
    }
  };
  const leases = async () =>
    (
      await house.rows<{ id: string }>(
        "select id from sagabox.member where lease_until > clock_timestamp() and worker <> 'here' order by id",
      )
    ).map(({ id }) => id);
  return { ...house, sessionOf, elsewhere, member, lookedAround, leases };
}

test("A8: the lanes of a process whose sessions have all ended are taken over long before its lease is over", async () => {
  const { sessionOf, elsewhere, member, leases, pool } = await setup();
  await elsewhere("relay", "killed", 0, await sessionOf("ended"));
  await elsewhere("consumer", "killed", 1, await sessionOf("ended"));
  await pool.query(
    `insert into sagabox.member (id, scope, worker, lease_until, process)
     values ('ledger', -1, 'ledger', clock_timestamp() + interval '1 hour', 'killed')`,
  );
  const taking = await member(0);
  await until(() => taking.size === LANES);
  // In every scope at once, and what it was running is suspect from then on.
  expect(await leases()).toEqual([]);
});

test("A8: a process with one session left is alive, however many have ended", async () => {
  const { sessionOf, elsewhere, member, lookedAround, leases } = await setup();
  await elsewhere("relay", "half", 0, await sessionOf("ended"));
  await elsewhere("consumer", "half", 1, await sessionOf("open"));
  const waiting = await member(0);
  await lookedAround();
  expect([waiting.size, await leases()]).toEqual([0, ["consumer", "relay"]]);
});

test("A8: a member that does not say which session it has, as those of older versions, keeps its whole lease", async () => {
  const { elsewhere, member, lookedAround, leases } = await setup();
  await elsewhere("older", null, 0, null);
  await elsewhere("pooled", "pooled", 1, null);
  const waiting = [await member(0), await member(1)];
  await lookedAround();
  expect([waiting.map(({ size }) => size), await leases()]).toEqual([
    [0, 0],
    ["older", "pooled"],
  ]);
});

test("A8: a member whose session ended says so with the next one, and keeps its lanes", async () => {
  const { member, rows, pool } = await setup();
  const first = await member();
  await until(() => first.size === LANES);
  const name = first.member;
  const backend = async () =>
    (await rows<{ backend: number }>("select backend from sagabox.member"))[0]?.backend;
  const before = await backend();
  await pool.query("select pg_terminate_backend($1)", [before]);
  await until(async () => (await backend()) !== before);
  expect([first.member, first.size]).toEqual([name, LANES]);
});
