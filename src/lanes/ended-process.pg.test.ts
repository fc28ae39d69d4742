import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import { relays, until } from "../../test/support/relays.ts";
import { locateProcess } from "../runtime/index.ts";
import { SessionHolder } from "../storage/index.ts";
import { laneSettings } from "./options.ts";
import { LANES } from "./statements.ts";
import { LaneOwnership } from "./ownership.ts";

const onLinux = test.skipIf(process.platform !== "linux");

interface MemberProcess {
  readonly location?: string | null;
  readonly backend?: number;
}

/** Locates another process of this machine that is running or has ended. */
async function locateOther(fate: "running" | "ended"): Promise<string | null> {
  const other = spawn(process.execPath, ["-e", "setInterval(() => undefined, 1000)"]);
  onTestFinished(() => void other.kill("SIGKILL"));
  const location = locateProcess(other.pid ?? 0);
  const died = once(other, "exit");
  if (fate === "ended") other.kill("SIGKILL");
  if (fate === "ended") await died;
  return location;
}

async function setup() {
  const harness = await relays();
  const { pool } = harness;
  await pool.query(
    "insert into sagabox.relay_lane (lane, scope) select lane, 1 from generate_series(256, 511) as lane",
  );
  /** Returns the pid of a session that is open or has ended. */
  const openSession = async (fate: "open" | "ended"): Promise<number> => {
    const client = await pool.connect();
    const { rows } = await client.query<{ pid: number }>("select pg_backend_pid() as pid");
    const pid = rows[0]?.pid ?? 0;
    if (fate === "open") onTestFinished(() => client.release());
    else client.release(true);
    const there = "select count(*)::int as n from pg_stat_activity where pid = $1";
    await until(async () => (await harness.rows(there, [pid]))[0]?.["n"] === (fate === "open" ? 1 : 0));
    return pid;
  };
  /** Inserts a member of another process, with a lease of one hour and all lanes of its scope. */
  const insertMember = async (id: string, process: string | null, scope: number, of: MemberProcess = {}) => {
    await pool.query(
      `insert into sagabox.member (id, scope, worker, lease_until, process, backend, location)
       values ($1, $2, $1, clock_timestamp() + interval '1 hour', $3, $4, $5)`,
      [id, scope, process, of.backend, of.location],
    );
    await pool.query("update sagabox.relay_lane set owner = $1, token = 't', fence = 1 where scope = $2", [
      id,
      scope,
    ]);
  };
  const member = async (scope = 0) => {
    const holder = new SessionHolder(harness.database, "member", {});
    const ownership = new LaneOwnership({
      database: harness.database,
      session: () => holder.get(),
      schema: "sagabox",
      scope,
      scopeName: "outbox",
      worker: "here",
      settings: laneSettings({ lease: 1_000 }),
      observer: harness.observer,
    });
    onTestFinished(async () => {
      await ownership.stop();
      await holder.close();
    });
    await ownership.start();
    return ownership;
  };
  /** Waits for four renewals, which is longer than the grace period for ended processes. */
  const fourRenewals = async () => {
    const renewed = async (): Promise<string> =>
      JSON.stringify(await harness.rows("select lease_until from sagabox.member where worker = 'here'"));
    for (let times = 0; times < 4; times++) {
      const before = await renewed();
      await until(async () => (await renewed()) !== before);
    }
  };
  const leases = async () =>
    (
      await harness.rows<{ id: string }>(
        "select id from sagabox.member where lease_until > clock_timestamp() and worker <> 'here' order by id",
      )
    ).map(({ id }) => id);
  return { ...harness, openSession, insertMember, member, fourRenewals, leases };
}

onLinux(
  "A8: the lanes of a process that was killed on this machine are taken over long before its lease ends",
  async () => {
    const { openSession, insertMember, member, leases, pool } = await setup();
    const location = await locateOther("ended");
    await insertMember("relay", "killed", 0, { location, backend: await openSession("ended") });
    await insertMember("consumer", "killed", 1, { location, backend: await openSession("ended") });
    await pool.query(
      `insert into sagabox.member (id, scope, worker, lease_until, process)
     values ('ledger', -1, 'ledger', clock_timestamp() + interval '1 hour', 'killed')`,
    );
    const taking = await member(0);
    await until(() => taking.size === LANES);
    // The leases ended in every scope at once, including the crash ledger's.
    expect(await leases()).toEqual([]);
  },
);

onLinux("A8: a live process keeps its whole lease even without any session", async () => {
  const { openSession, insertMember, member, fourRenewals, leases } = await setup();
  const of = { location: await locateOther("running"), backend: await openSession("ended") };
  await insertMember("relay", "cut off", 0, of);
  const waiting = await member(0);
  await fourRenewals();
  expect([waiting.size, await leases()]).toEqual([0, ["relay"]]);
});

onLinux("A8: a process with one open session is not dismissed", async () => {
  const { openSession, insertMember, member, fourRenewals, leases } = await setup();
  const location = await locateOther("ended");
  await insertMember("relay", "half", 0, { location, backend: await openSession("ended") });
  await insertMember("consumer", "half", 1, { location, backend: await openSession("open") });
  const waiting = await member(0);
  await fourRenewals();
  expect([waiting.size, await leases()]).toEqual([0, ["consumer", "relay"]]);
});

test("A8: a member without known process or session, or on another machine, keeps its whole lease", async () => {
  const { openSession, insertMember, member, fourRenewals, leases } = await setup();
  await insertMember("older", null, 0);
  await insertMember("abroad", "abroad", 1, {
    location: "elsewhere/1/1",
    backend: await openSession("ended"),
  });
  const waiting = [await member(0), await member(1)];
  await fourRenewals();
  expect([waiting.map(({ size }) => size), await leases()]).toEqual([
    [0, 0],
    ["abroad", "older"],
  ]);
});

test("A8: a member whose session ended registers its next session and keeps its lanes", async () => {
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
