import { expect, test } from "vitest";
import { planGroup, type Plan, type MemberView } from "./ownership.ts";
import { slotKey, type GroupState, type Slot } from "./group-state.ts";

const fresh: Slot = { owner: null, epoch: 1, base: 1, at: 5, fresh: true };

const slots = (count: number, topic = "t"): Record<string, Slot> =>
  Object.fromEntries(Array.from({ length: count }, (_, p) => [slotKey(topic, p), fresh]));

const createView = (me: string, change: Partial<MemberView> = {}): MemberView => ({
  me,
  topics: ["t"],
  dead: new Set(),
  running: new Map(),
  draining: new Set(),
  opened: new Map(),
  released: new Map(),
  leaving: false,
  ...change,
});

const listOwned = ({ slots: all }: GroupState, id: string): string[] =>
  Object.keys(all).filter((key) => all[key]?.owner === id);

/** The partitions that a member reads after the plan, if all its consumers were opened at once. */
const findRunning = ({ state }: Plan, id: string): Map<string, number> =>
  new Map(listOwned(state, id).map((key) => [key, state.slots[key]?.epoch ?? 0]));

test("B7: the first member takes every partition and uses the consumers that were never read", () => {
  const plan = planGroup({ members: {}, slots: slots(8) }, createView("a"));
  expect(plan.taken).toHaveLength(8);
  expect(plan.state.slots[slotKey("t", 0)]).toEqual({ owner: "a", epoch: 1, base: 1, at: 5 });
  expect(plan.changed).toBe(true);
});

test("B7: a second member gets half of the partitions after the first has released them", () => {
  const first = planGroup({ members: {}, slots: slots(8) }, createView("a"));
  const second = planGroup(first.state, createView("b"));
  expect(second.taken).toEqual([]);
  const running = findRunning(first, "a");
  const noticed = planGroup(second.state, createView("a", { running }));
  expect(noticed.shed).toHaveLength(4);
  const draining = new Set(noticed.shed);
  expect(planGroup(noticed.state, createView("a", { running, draining })).shed).toEqual([]);
  const released = new Map(noticed.shed.map((key) => [key, { at: 9, done: [11] }]));
  const given = planGroup(noticed.state, createView("a", { running, draining, released }));
  const taken = planGroup(given.state, createView("b"));
  expect(taken.taken.map(({ key }) => key)).toEqual(noticed.shed);
  expect(taken.taken[0]?.slot).toMatchObject({ owner: "b", epoch: 2, base: 1, at: 9, done: [11] });
  expect(listOwned(taken.state, "a")).toHaveLength(4);
});

test("D6: a dead member is removed, and its partitions start a new term", () => {
  const first = planGroup({ members: {}, slots: slots(4) }, createView("a"));
  const heir = planGroup(first.state, createView("b", { dead: new Set(["a"]) }));
  expect(Object.keys(heir.state.members)).toEqual(["b"]);
  expect(heir.taken.map(({ slot }) => slot.epoch)).toEqual([2, 2, 2, 2]);
  const back = planGroup(heir.state, createView("a", { running: findRunning(first, "a") }));
  expect(back.lost).toHaveLength(4);
});

test("D6: a partition that the record assigns to this member but that it does not read starts a new term", () => {
  const first = planGroup({ members: {}, slots: slots(2) }, createView("a"));
  const again = planGroup(first.state, createView("a"));
  expect(again.taken.map(({ slot }) => slot.epoch)).toEqual([2, 2]);
});

test("D6, B7: a member that lost its connection releases the partitions beyond its share, and the others read them", () => {
  const alone = planGroup({ members: {}, slots: slots(8) }, createView("a"));
  const joined = planGroup(alone.state, createView("b"));
  // "a" reads nothing now: it lost its connection, or its lease expired.
  const back = planGroup(joined.state, createView("a"));
  expect(back.taken).toHaveLength(4);
  expect(back.shed).toEqual([]);
  const heir = planGroup(back.state, createView("b"));
  expect(heir.taken).toHaveLength(4);
  expect(heir.taken[0]?.slot).toMatchObject({ owner: "b", epoch: 2, base: 1, at: 5 });
});

test("D6: a new term continues only from a term whose consumer was created", () => {
  const first = planGroup({ members: {}, slots: slots(1) }, createView("a"));
  const second = planGroup(first.state, createView("a"));
  const third = planGroup(second.state, createView("a"));
  expect(third.state.slots[slotKey("t", 0)]).toMatchObject({ epoch: 3, base: 1 });
  const running = findRunning(third, "a");
  const opened = new Map([[slotKey("t", 0), { epoch: 3, at: 70 }]]);
  const known = planGroup(third.state, createView("a", { running, opened }));
  expect(known.state.slots[slotKey("t", 0)]).toMatchObject({ epoch: 3, base: 3, at: 70 });
});

test("B7: leaving releases every partition at its position, and only the heartbeat changes in between", () => {
  const first = planGroup({ members: {}, slots: slots(2) }, createView("a"));
  const running = findRunning(first, "a");
  const idle = planGroup(first.state, createView("a", { running }));
  expect(idle.changed).toBe(false);
  expect(idle.state.members["a"]?.beat).toBe(2);
  const released = new Map([...running.keys()].map((key) => [key, { at: 30, done: [] }]));
  const left = planGroup(idle.state, createView("a", { running, released, leaving: true }));
  expect(left.state.members).toEqual({});
  expect(Object.values(left.state.slots).map(({ owner, at }) => [owner, at])).toEqual([
    [null, 30],
    [null, 30],
  ]);
});

test("B7: any number of members settles on even shares, with one owner per partition", () => {
  for (let count = 1; count <= 10; count++) {
    let state: GroupState = { members: {}, slots: { ...slots(8), ...slots(8, "u") } };
    const ids = Array.from({ length: count }, (_, n) => `m${n}`);
    for (let round = 0; round < 6; round++) {
      for (const me of ids) {
        const running = findRunning({ state } as Plan, me);
        const change = { topics: ["t", "u"], running };
        const { shed } = planGroup(state, createView(me, change));
        const released = new Map(shed.map((key) => [key, { at: 5, done: [] }]));
        state = planGroup(state, createView(me, { ...change, draining: new Set(shed), released })).state;
      }
    }
    const shares = ids.map((id) => listOwned(state, id).length);
    expect(shares.reduce((sum, share) => sum + share, 0)).toBe(16);
    expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(2);
  }
});

test("B7: a topic is assigned only to members that subscribe to it", () => {
  const state = { members: {}, slots: { ...slots(4), ...slots(4, "new") } };
  const old = planGroup(state, createView("a"));
  const young = planGroup(old.state, createView("b", { topics: ["t", "new"] }));
  expect(young.taken.map(({ key }) => key)).toEqual(["new/0", "new/1", "new/2", "new/3"]);
});
