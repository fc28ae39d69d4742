import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import { relays, until } from "../../test/support/relays.ts";
import { locateProcess } from "../runtime/index.ts";
import { SessionHolder } from "../storage/index.ts";
import { laneSettings } from "./options.ts";
import { LaneOwnership } from "./ownership.ts";
import { LANES } from "./share.ts";

const onLinux = test.skipIf(process.platform !== "linux");

interface Told {
  readonly place?: string | null;
  readonly backend?: number;
}

/** Where another process of this machine runs, or ran. */
async function placeOfOther(fate: "running" | "ended"): Promise<string | null> {
  const other = spawn(process.execPath, ["-e", "setInterval(() => undefined, 1000)"]);
  onTestFinished(() => void other.kill("SIGKILL"));
  const place = locateProcess(other.pid ?? 0);
  const died = once(other, "exit");
  if (fate === "ended") other.kill("SIGKILL");
  if (fate === "ended") await died;
  return place;
}

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
  const elsewhere = async (id: string, process: string | null, scope: number, told: Told = {}) => {
    await pool.query(
      `insert into sagabox.member (id, scope, worker, lease_until, process, backend, place)
       values ($1, $2, $1, clock_timestamp() + interval '1 hour', $3, $4, $5)`,
      [id, scope, process, told.backend, told.place],
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

onLinux(
  "A8: the lanes of a process that was killed here are taken over long before its lease is over",
  async () => {
    const { sessionOf, elsewhere, member, leases, pool } = await setup();
    const place = await placeOfOther("ended");
    await elsewhere("relay", "killed", 0, { place, backend: await sessionOf("ended") });
    await elsewhere("consumer", "killed", 1, { place, backend: await sessionOf("ended") });
    await pool.query(
      `insert into sagabox.member (id, scope, worker, lease_until, process)
     values ('ledger', -1, 'ledger', clock_timestamp() + interval '1 hour', 'killed')`,
    );
    const taking = await member(0);
    await until(() => taking.size === LANES);
    // In every scope at once; the ledger of what it was running among them.
    expect(await leases()).toEqual([]);
  },
);

onLinux("A8: a process that lives keeps its whole lease, though none of its sessions is left", async () => {
  const { sessionOf, elsewhere, member, lookedAround, leases } = await setup();
  const told = { place: await placeOfOther("running"), backend: await sessionOf("ended") };
  await elsewhere("relay", "cut off", 0, told);
  const waiting = await member(0);
  await lookedAround();
  expect([waiting.size, await leases()]).toEqual([0, ["relay"]]);
});

onLinux("A8: a process with a session left is not gone, whatever seems to have become of it", async () => {
  const { sessionOf, elsewhere, member, lookedAround, leases } = await setup();
  const place = await placeOfOther("ended");
  await elsewhere("relay", "half", 0, { place, backend: await sessionOf("ended") });
  await elsewhere("consumer", "half", 1, { place, backend: await sessionOf("open") });
  const waiting = await member(0);
  await lookedAround();
  expect([waiting.size, await leases()]).toEqual([0, ["consumer", "relay"]]);
});

test("A8: who does not say where it runs, or by which session, or runs elsewhere, keeps its whole lease", async () => {
  const { sessionOf, elsewhere, member, lookedAround, leases } = await setup();
  await elsewhere("older", null, 0);
  await elsewhere("abroad", "abroad", 1, { place: "elsewhere/1/1", backend: await sessionOf("ended") });
  const waiting = [await member(0), await member(1)];
  await lookedAround();
  expect([waiting.map(({ size }) => size), await leases()]).toEqual([
    [0, 0],
    ["abroad", "older"],
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
