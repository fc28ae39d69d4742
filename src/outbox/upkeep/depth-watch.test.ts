import { expect, onTestFinished, test } from "vitest";
import { RecordingObserver } from "../../../test/support/recording-observer.ts";
import { ScriptedTransport } from "../../../test/support/scripted-transport.ts";
import { Destinations } from "../destinations.ts";
import { outboxSettings } from "../options.ts";
import { DepthWatch, depthVerdict } from "./depth-watch.ts";

const limits = { limit: 100, resumeAt: 50, everyMs: 10 };

function setup(options: { readonly limits?: null; readonly consumed?: readonly string[] } = {}) {
  const observer = new RecordingObserver();
  const transport = new ScriptedTransport();
  const clock = { nowMs: 0 };
  const destinations = new Destinations({
    breaker: outboxSettings().breaker,
    observer,
    clock: { monotonicMs: () => clock.nowMs, wallMs: () => 0 },
  });
  const watch = new DepthWatch({
    transport,
    destinations,
    limits: options.limits === null ? null : limits,
    consumed: () => options.consumed ?? [],
    shownEveryMs: 10,
    observer,
  });
  onTestFinished(() => watch.stop());
  return { observer, transport, clock, destinations, watch };
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

test("A16: depths are read for topics with recent sends, and only the full one is paused", async () => {
  const { observer, transport, destinations, watch } = setup();
  const requested: string[][] = [];
  transport.depths = (topics) => {
    requested.push([...topics]);
    return Promise.resolve(
      new Map([
        ["full", 100],
        ["fine", 99],
      ]),
    );
  };
  await watch.start();
  destinations.recordAnswer("full");
  destinations.recordAnswer("fine");
  await observer.until("destination.paused");
  expect([destinations.listPaused(), destinations.states()]).toEqual([["full"], { full: "paused" }]);
  expect([destinations.admit("full"), destinations.accepts("full"), destinations.admit("fine")]).toEqual([
    "none",
    false,
    "all",
  ]);
  expect(requested).toContainEqual(["full", "fine"]);
});

test("A16: a topic is resumed when the broker stops reporting depths", async () => {
  const { observer, transport, destinations, watch } = setup();
  transport.depths = () => Promise.resolve(new Map([["t", 500]]));
  destinations.recordAnswer("t");
  await watch.start();
  await observer.until("destination.paused");
  transport.depths = () => Promise.reject(new Error("the management plug-in is gone"));
  expect(await observer.until("destination.resumed")).toMatchObject([{ topic: "t", depth: null }]);
  expect(observer.of("depth.unknown").map(({ failures }) => failures)).toEqual([1, 2, 3, 4, 5]);
});

test("A16: a topic the broker omits stays paused", async () => {
  const { observer, transport, destinations, watch } = setup();
  const answers = [new Map([["t", 500]]), new Map(), new Map(), new Map([["t", 60]]), new Map([["t", 50]])];
  transport.depths = () => Promise.resolve(answers.shift() ?? new Map());
  destinations.recordAnswer("t");
  await watch.start();
  expect(await observer.until("destination.resumed")).toMatchObject([{ topic: "t", depth: 50 }]);
  expect(observer.of("depth.measured").map(({ depth }) => depth)).toEqual([500, 60, 50]);
  expect(observer.of("depth.unknown").map(({ failures }) => failures)).toEqual([1, 2]);
});

test("A16: a topic without a depth is resumed after several reads", async () => {
  const { observer, transport, destinations, watch } = setup();
  const answers = [new Map([["t", 500]])];
  transport.depths = () => Promise.resolve(answers.shift() ?? new Map());
  destinations.recordAnswer("t");
  destinations.recordAnswer("silent");
  await watch.start();
  expect(await observer.until("destination.resumed")).toMatchObject([{ topic: "t", depth: null }]);
  expect(observer.of("depth.unknown").map(({ failures }) => failures)).toEqual([1, 2, 3, 4, 5]);
  expect(observer.of("destination.paused").map(({ topic }) => topic)).toEqual(["t"]);
});

test("a limit is refused if the transport reports no depths", () => {
  const { observer, destinations } = setup();
  const { depths: _, ...mute } = new ScriptedTransport();
  const transport = { ...mute, name: "mute" } as unknown as ScriptedTransport;
  expect(() => new DepthWatch({ transport, destinations, limits, consumed: () => [], observer })).toThrow(
    expect.objectContaining({ code: "OPTIONS_INVALID" }),
  );
});

test("an idle topic is read until it is empty, so that its metric drops to zero", async () => {
  const { observer, transport, clock, destinations, watch } = setup({ limits: null });
  const depths = [12_000, 700, 0];
  const requested: string[][] = [];
  transport.depths = (topics) => {
    requested.push([...topics]);
    clock.nowMs += 120_000; // more than RECENT_MS
    const depth = depths.shift() ?? 0;
    if (depth === 0) destinations.recordAnswer("next");
    return Promise.resolve(new Map(topics.map((topic) => [topic, depth])));
  };
  destinations.recordAnswer("t");
  await watch.start();
  const measured = await observer.until("depth.measured", 4);
  expect(measured.map(({ topic, depth }) => `${topic} ${depth}`)).toEqual([
    "t 12000",
    "t 700",
    "t 0",
    "next 0",
  ]);
  expect(requested.slice(0, 4)).toEqual([["t"], ["t"], ["t"], ["next"]]);
});

test("without a limit depths are emitted, and nothing is paused", async () => {
  const { observer, transport, destinations, watch } = setup({ limits: null, consumed: ["consumed"] });
  transport.depths = (topics) => Promise.resolve(new Map(topics.map((topic) => [topic, 1_000_000])));
  destinations.recordAnswer("sent");
  await watch.start();
  const measured = await observer.until("depth.measured", 4);
  expect(measured.slice(0, 2)).toEqual([
    { topic: "sent", depth: 1_000_000 },
    { topic: "consumed", depth: 1_000_000 },
  ]);
  expect(destinations.listPaused()).toEqual([]);
});

test("a topic that is only consumed here is emitted, never paused", async () => {
  const { observer, transport, destinations, watch } = setup({ consumed: ["consumed"] });
  transport.depths = (topics) => Promise.resolve(new Map(topics.map((topic) => [topic, 500])));
  await watch.start();
  await observer.until("depth.measured", 3);
  expect([destinations.listPaused(), observer.of("destination.paused")]).toEqual([[], []]);
});

test("the metric disappears when the broker stops reporting depths, of one topic or of all", async () => {
  const { observer, transport, destinations, watch } = setup();
  const answers = [
    new Map([
      ["gone", 60],
      ["kept", 60],
    ]),
  ];
  transport.depths = () => Promise.resolve(answers.shift() ?? new Map([["kept", 60]]));
  destinations.recordAnswer("gone");
  destinations.recordAnswer("kept");
  await watch.start();
  expect(await observer.until("depth.forgotten")).toEqual([{ topic: "gone" }]);
  transport.depths = () => Promise.reject(new Error("not authorized"));
  expect(await observer.until("depth.forgotten", 2)).toEqual([{ topic: "gone" }, { topic: "kept" }]);
  expect(observer.of("depth.unknown").map(({ failures }) => failures)).toEqual([1, 2, 3, 4, 5]);
});
