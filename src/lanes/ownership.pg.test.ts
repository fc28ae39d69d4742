import { expect, onTestFinished, test } from "vitest";
import { claimOn, relays, until } from "../../test/support/relays.ts";
import { laneSettings } from "./options.ts";
import { fairShare, LANES } from "./statements.ts";
import { LaneOwnership } from "./ownership.ts";

interface MemberOptions {
  readonly database?: Awaited<ReturnType<typeof relays>>["database"];
  readonly leaseMs?: number;
  readonly scope?: number;
  readonly worker?: string;
}

async function setup() {
  const harness = await relays();
  const all: LaneOwnership[] = [];
  /** Lanes with rows in flight, which a member may not release yet. */
  const busy = new Set<number>();
  const member = async (options: MemberOptions = {}) => {
    const ownership = new LaneOwnership({
      database: options.database ?? harness.database,
      schema: "sagabox",
      scope: options.scope ?? 0,
      scopeName: "outbox",
      worker: options.worker ?? `w${all.length}`,
      settings: laneSettings({ lease: options.leaseMs ?? 1_000 }),
      observer: harness.observer,
    });
    ownership.attach({
      onLanesGained: () => undefined,
      isDrained: (lane) => !busy.has(lane),
      onLanesLost: () => undefined,
      reads: () => 0,
      confirmReads: () => undefined,
    });
    all.push(ownership);
    onTestFinished(() => ownership.stop());
    await ownership.start();
    return ownership;
  };
  /** Returns every claim that any member considers valid right now. */
  const claims = (): number[] => all.flatMap((ownership) => ownership.lanes());
  const sizes = (): number[] => all.map((ownership) => ownership.size).toSorted((a, b) => b - a);
  return { ...harness, all, busy, member, claims, sizes };
}

const shares = (members: number): number[] =>
  Array.from({ length: members }, (_, rank) => fairShare(members, rank));

test("A6, rule 4: one, two, three and five members share the lanes evenly and never own one together", async () => {
  const { member, claims, sizes, all } = await setup();
  const doubles: number[] = [];
  const watch = setInterval(() => {
    const now = claims();
    if (new Set(now).size !== now.length) doubles.push(now.length);
  }, 1);
  onTestFinished(() => clearInterval(watch));
  for (const count of [1, 2, 3, 5]) {
    while (all.length < count) await member();
    await until(() => JSON.stringify(sizes()) === JSON.stringify(shares(count)));
    expect(new Set(claims()).size).toBe(LANES);
  }
  for (const leaver of all.splice(0, 3)) await leaver.stop();
  await until(() => JSON.stringify(sizes()) === JSON.stringify(shares(2)));
  expect([new Set(claims()).size, doubles]).toEqual([LANES, []]);
});

test("A6: two processes own the same lanes in every scope, whichever started first", async () => {
  const { member, pool } = await setup();
  await pool.query(
    "insert into sagabox.relay_lane (lane, scope) select lane, 1 from generate_series(256, 511) as lane",
  );
  const join = async (first: string, second: string, scope: number) => {
    const there = await member({ scope, worker: first, leaseMs: 5_000 });
    await until(() => there.size === LANES);
    const joining = await member({ scope, worker: second, leaseMs: 5_000 });
    await until(() => joining.size === LANES / 2);
    return { [first]: there, [second]: joining };
  };
  const scopes = [await join("a", "b", 0), await join("b", "a", 1)];
  const lanesOf = (worker: string): number[][] =>
    scopes.map((scope) =>
      (scope[worker]?.lanes() ?? []).map((lane) => lane % LANES).toSorted((x, y) => x - y),
    );
  const all = Array.from({ length: LANES }, (_, lane) => lane);
  expect(lanesOf("a")).toEqual([all.slice(0, 128), all.slice(0, 128)]);
  expect(lanesOf("b")).toEqual([all.slice(128), all.slice(128)]);
});

test("A6, rule 4: a lane is released only when nothing of it is in flight any more", async () => {
  const { member, busy, rows } = await setup();
  const first = await member();
  await until(() => first.size === LANES);
  for (let lane = 0; lane < LANES; lane++) busy.add(lane);
  const second = await member();
  await until(() => first.lanes().length === LANES / 2);
  expect([first.size, second.size]).toEqual([LANES, 0]);
  expect(await rows("select distinct owner from sagabox.relay_lane")).toEqual([{ owner: first.member }]);
  busy.clear();
  first.wake();
  await until(() => second.size === LANES / 2);
  expect(first.size).toBe(LANES / 2);
});

test("rule 4: a draining lane is kept if the other member leaves first", async () => {
  const { member, busy } = await setup();
  const first = await member();
  await until(() => first.size === LANES);
  for (let lane = 0; lane < LANES; lane++) busy.add(lane);
  const second = await member();
  await until(() => first.lanes().length === LANES / 2);
  await second.stop();
  await until(() => first.lanes().length === LANES);
});

test("rule 4: of the draining lanes, the preferred ones are kept", async () => {
  const { member, busy } = await setup();
  const first = await member({ leaseMs: 5_000 });
  await until(() => first.size === LANES);
  for (let lane = 0; lane < LANES; lane++) busy.add(lane);
  await member({ leaseMs: 5_000 });
  const third = await member({ leaseMs: 5_000 });
  await until(() => first.lanes().length === fairShare(3, 0));
  await third.stop();
  await until(() => first.lanes().length === LANES / 2);
  expect(first.lanes().toSorted((a, b) => a - b)).toEqual(
    Array.from({ length: LANES / 2 }, (_, lane) => lane),
  );
});

test("rule 2: each claim has a higher fence and a new token", async () => {
  const { member, rows } = await setup();
  const first = await member();
  await until(() => first.size === LANES);
  const before = first.claimToSettle(7);
  await first.stop();
  const second = await member();
  await until(() => second.size === LANES);
  const after = second.claimToSettle(7);
  expect(after?.fence).toBe((before?.fence ?? 0) + 1);
  expect(after?.token).not.toBe(before?.token);
  expect(await rows("select count(distinct token)::int as n from sagabox.relay_lane")).toEqual([{ n: 1 }]);
});

test("rule 2: a member relies on its lease for a shorter time than the database grants", async () => {
  const { member, rows } = await setup();
  const first = await member({ leaseMs: 3_000 });
  await until(() => first.size === LANES);
  const [row] = await rows<{ left_ms: number }>(
    "select extract(epoch from lease_until - clock_timestamp())::float8 * 1000 as left_ms from sagabox.member",
  );
  expect(first.remainingMs()).toBeLessThan(row?.left_ms ?? 0);
  expect(first.remainingMs()).toBeGreaterThan(1_000);
});

test("A8: a silent member stops relying on its lease before another takes its lanes over", async () => {
  const { member, database, fresh, claims } = await setup();
  const first = await member();
  await until(() => first.size === LANES);
  const overlaps: number[] = [];
  const watch = setInterval(() => {
    const now = claims();
    if (new Set(now).size !== now.length) overlaps.push(now.length);
  }, 1);
  onTestFinished(() => clearInterval(watch));
  database.silence();
  const second = await member({ database: fresh() });
  await until(() => second.size === LANES);
  expect([first.lanes(), overlaps]).toEqual([[], []]);
  database.speak();
  await until(() => second.size === LANES / 2 && first.size === LANES / 2);
  expect(new Set(claims()).size).toBe(LANES);
});

test("A8: an expired lease is not renewed: the worker joins again under a new id", async () => {
  const { member, pool, observer } = await setup();
  const first = await member();
  await until(() => first.size === LANES);
  const name = first.member;
  await pool.query("update sagabox.member set lease_until = clock_timestamp() - interval '1 ms'");
  await observer.until("lanes.lost");
  await until(() => first.size === LANES);
  expect(first.member).not.toBe(name);
});

test("a member that is gone is reported once and deleted", async () => {
  const { member, pool, rows, observer } = await setup();
  await pool.query(
    `insert into sagabox.member (id, scope, worker, lease_until)
     values ('gone', 0, 'gone', clock_timestamp() - interval '1 min'), ('elsewhere', 3, 'x', clock_timestamp() - interval '1 min')`,
  );
  await member();
  expect(await observer.until("member.gone")).toEqual([{ scope: "outbox", member: "gone" }]);
  expect(await rows("select id from sagabox.member where worker in ('gone', 'x')")).toEqual([
    { id: "elsewhere" },
  ]);
});

test("a failed statement is reported and retried; the lanes are kept while the lease lasts", async () => {
  const { member, database, observer } = await setup();
  const first = await member();
  await until(() => first.size === LANES);
  database.failOnce("sagabox.lanes.look");
  expect(await observer.until("storage.failed")).toMatchObject([{ doing: "keeping the lease of outbox" }]);
  expect(first.size).toBe(LANES);
});

test("rule 2: a lane claimed by a statement whose reply was lost is released, although its owner has its share", async () => {
  const { member, pool, claims } = await setup();
  const first = await member();
  const second = await member();
  await until(() => first.size === LANES / 2 && second.size === LANES / 2);
  const [lane = -1] = second.lanes();
  // Simulates a claim whose reply the first member never received; the second learns of it at its next settle.
  const taken =
    "update sagabox.relay_lane set owner = $2, token = 'unheard', fence = fence + 1 where lane = $1";
  await pool.query(taken, [lane, first.member]);
  second.lose([claimOn(second, lane)]);
  await until(() => second.size === LANES / 2);
  expect(new Set(claims()).size).toBe(LANES);
  expect(second.claim(lane)).toBeDefined();
});

test("losing an old claim keeps a newer one on its lane", async () => {
  const { member, pool } = await setup();
  const only = await member();
  await until(() => only.size === LANES);
  const [lane = -1] = only.lanes();
  const old = claimOn(only, lane);
  // The process was stopped for longer than its lease: it joins again and claims everything anew.
  await pool.query("delete from sagabox.member");
  await until(() => only.size === LANES && only.claim(lane)?.token !== old.token);
  only.lose([old]); // a settle that began before reports the loss late
  expect(only.claim(lane)).toBeDefined();
  expect(only.size).toBe(LANES);
});

test("a lane that the table assigns to a member without a claim is released and claimed again", async () => {
  const { member } = await setup();
  const only = await member();
  await until(() => only.size === LANES);
  const [lane = -1] = only.lanes();
  const { fence } = claimOn(only, lane);
  only.lose([claimOn(only, lane)]); // a false report: all its other lanes have this token
  await until(() => only.size === LANES);
  expect(only.claim(lane)?.fence).toBe(fence + 1);
});

test("rule 2: a lease is valid while its renewal has begun, however long the commit takes", async () => {
  const { member, pool, rows } = await setup();
  const silent = await pool.connect();
  onTestFinished(() => silent.release());
  const mine =
    "insert into sagabox.member (id, scope, worker, lease_until) values ('slow/1', 0, 'slow', clock_timestamp() + interval '300 ms')";
  await pool.query(mine);
  await pool.query(
    "update sagabox.relay_lane set owner = 'slow/1', token = 't', fence = fence + 1 where scope = 0",
  );
  await silent.query("begin");
  await silent.query(
    "update sagabox.member set lease_until = clock_timestamp() + interval '1 hour' where id = 'slow/1'",
  );
  const other = await member({ leaseMs: 1_000 });
  const over = "select 1 from sagabox.member where id = 'slow/1' and lease_until < clock_timestamp()";
  await until(async () => (await rows(over)).length === 1);
  // A renewal is preceded by a look for lanes, which other sessions see with the expired lease.
  const renewed = async (): Promise<unknown> =>
    (await rows("select lease_until::text as at from sagabox.member where id <> 'slow/1'"))[0];
  for (let times = 0; times < 2; times++) {
    const before = JSON.stringify(await renewed());
    await until(async () => JSON.stringify(await renewed()) !== before);
  }
  expect(other.size).toBe(0);
  await silent.query("commit");
  expect(await rows("select distinct owner from sagabox.relay_lane where scope = 0")).toEqual([
    { owner: "slow/1" },
  ]);
});
