import { expect, onTestFinished, test } from "vitest";
import { RecordingObserver } from "../../../test/support/recording-observer.ts";
import { ScriptedTransport } from "../../../test/support/scripted-transport.ts";
import { Destinations } from "../destinations.ts";
import { outboxSettings } from "../options.ts";
import { DepthWatch, depthVerdict } from "./depth-watch.ts";

const limits = { limit: 100, resumeAt: 50, everyMs: 10 };

function setup() {
  const observer = new RecordingObserver();
  const transport = new ScriptedTransport();
  const destinations = new Destinations({ breaker: outboxSettings().breaker, observer });
  const watch = new DepthWatch({ transport, destinations, limits, observer });
  onTestFinished(() => watch.stop());
  return { observer, transport, destinations, watch };
}

test.each([
  [99, false, "stay"],
  [100, false, "pause"],
  [51, true, "stay"],
  [50, true, "resume"],
  [1_000, true, "stay"],
] as const)("A16: with %i waiting, paused %s: %s", (depth, paused, verdict) => {
  expect(depthVerdict(depth, paused, limits)).toBe(verdict);
});

test("A16: only topics something was sent to are asked about, and only the full one is paused", async () => {
  const { observer, transport, destinations, watch } = setup();
  const asked: string[][] = [];
  transport.depths = (topics) => {
    asked.push([...topics]);
    return Promise.resolve(
      new Map([
        ["full", 100],
        ["fine", 99],
      ]),
    );
  };
  await watch.start();
  destinations.answered("full");
  destinations.answered("fine");
  await observer.until("destination.paused");
  expect([destinations.paused(), destinations.states()]).toEqual([["full"], { full: "paused" }]);
  expect([destinations.admit("full"), destinations.accepts("full"), destinations.admit("fine")]).toEqual([
    "none",
    false,
    "all",
  ]);
  expect(asked).toContainEqual(["full", "fine"]);
});

test("A16: a broker that no longer tells does not keep a topic paused for ever", async () => {
  const { observer, transport, destinations, watch } = setup();
  transport.depths = () => Promise.resolve(new Map([["t", 500]]));
  destinations.answered("t");
  await watch.start();
  await observer.until("destination.paused");
  transport.depths = () => Promise.reject(new Error("the management plug-in is gone"));
  expect(await observer.until("destination.resumed")).toMatchObject([{ topic: "t", depth: null }]);
  expect(observer.of("depth.unknown").map(({ failures }) => failures)).toEqual([1, 2, 3, 4, 5]);
});

test("A16: a topic that the broker leaves out is unknown, not empty: told of later, it is still paused", async () => {
  const { observer, transport, destinations, watch } = setup();
  const answers = [new Map([["t", 500]]), new Map(), new Map(), new Map([["t", 60]]), new Map([["t", 50]])];
  transport.depths = () => Promise.resolve(answers.shift() ?? new Map());
  destinations.answered("t");
  await watch.start();
  expect(await observer.until("destination.resumed")).toMatchObject([{ topic: "t", depth: 50 }]);
  expect(observer.of("depth.measured").map(({ depth }) => depth)).toEqual([500, 60, 50]);
  expect(observer.of("depth.unknown").map(({ failures }) => failures)).toEqual([1, 2]);
});

test("A16: a topic the broker says nothing about any more goes on after some looks, and is never paused by them", async () => {
  const { observer, transport, destinations, watch } = setup();
  const answers = [new Map([["t", 500]])];
  transport.depths = () => Promise.resolve(answers.shift() ?? new Map());
  destinations.answered("t");
  destinations.answered("silent");
  await watch.start();
  expect(await observer.until("destination.resumed")).toMatchObject([{ topic: "t", depth: null }]);
  expect(observer.of("depth.unknown").map(({ failures }) => failures)).toEqual([1, 2, 3, 4, 5]);
  expect(observer.of("destination.paused").map(({ topic }) => topic)).toEqual(["t"]);
});

test("a transport that cannot tell is refused when the limit is given", () => {
  const { observer, destinations } = setup();
  const { depths: _, ...mute } = new ScriptedTransport();
  const transport = { ...mute, name: "mute" } as unknown as ScriptedTransport;
  expect(() => new DepthWatch({ transport, destinations, limits, observer })).toThrow(
    expect.objectContaining({ code: "OPTIONS_INVALID" }),
  );
});
