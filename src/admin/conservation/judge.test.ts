import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { findingKinds, toFindings } from "./findings.ts";
import { judge, needsTrace, type Suspect, type Trace } from "./window.ts";

const suspect: Suspect = {
  id: "m",
  lane: 7,
  seq: "42",
  carried: false,
  times: 0,
  sentAt: null,
  row: null,
  letters: 0,
  open: 0,
  openSince: null,
  replayed: 0,
  replayedAt: null,
};
const trace: Trace = {
  id: "m",
  sent: false,
  waits_again: false,
  sent_again: false,
  untold: false,
  delivered: false,
};
const [early, late] = ["2026-11-16T08:00:00Z", "2026-11-16T09:00:00Z"];

test.each<[string, Partial<Suspect>, Partial<Trace> | undefined, string, readonly string[]]>([
  ["nothing is known of it", {}, {}, "lost", ["message_lost"]],
  ["nobody has looked beyond its window", {}, undefined, "unjudged", []],
  ["its receipt went with the day it was carried from", { carried: true }, {}, "unjudged", []],
  ["a receipt far away names it", {}, { sent: true }, "sent", []],
  ["somebody has received it", {}, { delivered: true }, "sent", []],
  ["it is an open dead letter", { letters: 1, open: 1, openSince: early }, undefined, "dead", []],
  ["its letter keeps its place", { row: "held", letters: 1, open: 1 }, undefined, "dead", []],
  ["its letter was discarded", { letters: 1 }, undefined, "discarded", []],
  ["its replay waits", { letters: 1, replayed: 1 }, { waits_again: true }, "waiting", []],
  ["its replay was sent", { letters: 1, replayed: 1 }, { sent_again: true }, "sent", []],
  ["its replay left no trace", { letters: 1, replayed: 1 }, {}, "lost", ["replay_lost"]],
  ["an older version wrote the receipts", { letters: 1, replayed: 1 }, { untold: true }, "unjudged", []],
  ["it is sent and waits", { times: 1, row: "waiting" }, undefined, "waiting", ["sent_and_waiting"]],
  ["two receipts name it", { times: 2 }, undefined, "sent", ["sent_twice"]],
  ["it waits and is dead", { row: "waiting", open: 1 }, undefined, "waiting", ["dead_and_waiting"]],
  [
    "it was sent after it had died",
    { times: 1, sentAt: late, open: 1, openSince: early },
    undefined,
    "sent",
    ["dead_and_sent"],
  ],
  [
    "a copy sent again has died",
    { times: 1, sentAt: early, open: 1, openSince: late },
    undefined,
    "sent",
    [],
  ],
])("DESIGN 7C: a message is judged by what is known of it: %s", (_, change, found, account, kinds) => {
  const changed = { ...suspect, ...change };
  const judged = judge(changed, found === undefined ? undefined : { ...trace, ...found });
  expect([judged.account, judged.breaches.map(({ kind }) => kind)]).toEqual([account, kinds]);
  if (found !== undefined) expect(needsTrace(changed)).toBe(true);
});

test("DESIGN 7C: breaches of a kind and lane are one finding, which names the first twenty ids", () => {
  const breach = (id: string, lane: number) => ({ kind: "message_lost", lane, id }) as const;
  const many = Array.from({ length: 30 }, (_, n) => breach(`m-${n}`, 1));
  const [first, second, ...more] = toFindings([...many, breach("m-0", 1), breach("other", 2)]);
  expect(more).toEqual([]);
  expect([first?.count, first?.ids.length, first?.ids[0]]).toEqual([30, 20, "m-0"]);
  expect(second).toMatchObject({ kind: "message_lost", lane: 2, count: 1, ids: ["other"] });
  expect(first?.whatToDo).toContain("republish");
});

test("DESIGN 7C: every kind of finding is explained in the documentation", () => {
  const text = readFileSync("docs/explanation/conservation.md", "utf8").replaceAll(/\s+/g, " ");
  for (const [kind, { means, whatToDo }] of Object.entries(findingKinds)) {
    expect(text).toContain(`| \`${kind}\``);
    expect(text).toContain(means);
    expect(text).toContain(whatToDo);
  }
});
