import { describe, expect, test } from "vitest";
import { command } from "sagabox";
import { z } from "zod";
import { ManualSaga } from "../../test/support/manual-saga.ts";
import { saga } from "./index.ts";

const any = z.object({});
const Reserve = command("stock.reserve", { schema: any, reply: any });
const Release = command("stock.release", { schema: any });
const options = { version: 1, input: z.object({ id: z.string() }), key: (i: { id: string }) => i.id };
const order = saga("order", options);
const none = (): Record<string, never> => ({});
const refused = { kind: "refused", error: "no" } as const;
const failed = { kind: "failed", error: "broken" } as const;
const once = { retry: { maxAttempts: 1 } };

const twoSends = order
  .send("reserve", Reserve, none)
  .undo(Release, none)
  .send("charge", Reserve, none, { timeout: "5s" })
  .undo(Release, none, once);

describe("one step after the other", () => {
  test("each begins when the one before is done; the last one completes it", () => {
    const played = new ManualSaga(twoSends);
    expect([played.status, played.listSent()]).toEqual(["running", ["do reserve"]]);
    played.reply("do reserve");
    expect(played.listSent()).toEqual(["do reserve", "do charge"]);
    expect(played.reply("do charge")).toBe("completed");
  });

  test("a duplicate reply changes nothing", () => {
    const played = new ManualSaga(twoSends);
    played.reply("do reserve");
    expect(played.reply("do reserve")).toBe("it was known to be done");
    expect(played.listSent()).toEqual(["do reserve", "do charge"]);
  });

  test("a refusal undoes what was done before, and not what was refused", () => {
    const played = new ManualSaga(twoSends);
    played.reply("do reserve");
    expect(played.reply("do charge", refused)).toBe("compensating");
    expect(played.listSent()).toEqual(["do reserve", "do charge", "undo reserve"]);
    expect(played.reply("undo reserve", { kind: "done" })).toBe("compensated");
  });

  test("S-06: out of time is unknown, and unknown is undone first", () => {
    const played = new ManualSaga(twoSends);
    played.reply("do reserve");
    expect(played.tick(5_000)).toBe("compensating");
    expect(played.command("undo charge").undoes).toEqual({ type: Reserve.name, ids: ["m2"] });
    played.reply("undo charge", { kind: "done" });
    expect(played.listSent().slice(2)).toEqual(["undo charge", "undo reserve"]);
    expect(played.reply("undo reserve", { kind: "done" })).toBe("compensated");
  });

  test("S-05: after the timeout the reply has lost, and before it the timeout", () => {
    const played = new ManualSaga(twoSends);
    played.reply("do reserve");
    played.tick(5_000);
    expect(played.reply("do charge", refused)).toBe("its outcome had been decided before");
    const other = new ManualSaga(twoSends);
    other.reply("do reserve");
    other.reply("do charge");
    expect(other.tick(5_000)).toBe("it has ended");
  });

  test("a try that ran out of time is not counted again when its failure arrives", () => {
    const patient = order
      .send("reserve", Reserve, none, { timeout: 1_000, retry: { maxAttempts: 2, firstDelay: 500 } })
      .undo(Release, none);
    const played = new ManualSaga(patient);
    played.tick(1_000);
    expect(played.reply("do reserve", failed)).toBe("it is going to be tried again");
    expect(played.tick(500)).toBe("running");
    expect(played.command("do reserve").supersedes).toEqual({ type: Reserve.name, ids: ["m1"] });
    expect(played.reply("do reserve")).toBe("completed");
  });
});

describe("late successes", () => {
  test("I-17: one that comes after its undo is undone once more", () => {
    const played = new ManualSaga(twoSends);
    played.reply("do reserve");
    played.tick(5_000);
    played.reply("undo charge", { kind: "done" });
    played.reply("undo reserve", { kind: "done" });
    expect(played.reply("do charge")).toBe("compensating");
    expect(played.reply("undo charge", { kind: "done" })).toBe("compensated");
    expect(played.listSent().filter((one) => one === "undo charge")).toHaveLength(2);
  });

  test("I-17: an undo that was under way may have come too early, so that its success does not count", () => {
    const played = new ManualSaga(twoSends);
    played.reply("do reserve");
    played.tick(5_000);
    played.reply("do charge");
    expect(played.reply("undo charge", { kind: "done" }, 1)).toBe("the step was done after this undo");
    played.reply("undo charge", { kind: "done" }, 2);
    expect(played.step("charge")).toBe("compensated");
  });

  test("I-17: nor does it count when its undo had been given up in between", () => {
    const played = new ManualSaga(twoSends);
    played.reply("do reserve");
    played.tick(5_000);
    expect(played.tick(5_000)).toBe("failed");
    played.reply("do charge");
    expect(played.reply("undo charge", { kind: "done" }, 1)).toBe("the step was done after this undo");
    played.applyDecision("retry", "charge");
    expect(played.reply("undo charge", { kind: "done" }, 2)).toBe("compensating");
  });
});

describe("the pivot", () => {
  const pivoted = order
    .send("reserve", Reserve, none)
    .undo(Release, none)
    .send("pay", Reserve, none, { timeout: "1s", ...once })
    .pivot()
    .run("ship", none, once);

  test("past it a failure is tried again, then parked, and never undone", () => {
    const played = new ManualSaga(pivoted);
    played.reply("do reserve");
    expect(played.reply("do pay")).toBe("completing");
    expect(played.finishWork("do ship", failed)).toBe("failed");
    expect(played.listIncident()).toEqual(["ship"]);
    expect(played.by("cancel")).toMatch("past its pivot");
    expect(played.applyDecision("retry", "ship")).toBe("completing");
    expect(played.finishWork("do ship")).toBe("completed");
    expect(played.listIncident()).toBeUndefined();
  });

  test("one of unknown outcome parks, cannot be cancelled, and continues when its success comes", () => {
    const played = new ManualSaga(pivoted);
    played.reply("do reserve");
    expect(played.tick(1_000)).toBe("failed");
    expect(played.by("cancel")).toMatch("its outcome is not known yet");
    expect(played.reply("do pay")).toBe("completing");
  });

  test("a refused one turns back", () => {
    const played = new ManualSaga(pivoted);
    played.reply("do reserve");
    expect(played.reply("do pay", refused)).toBe("compensating");
  });
});

test("S-06, S-23: a refusal after a try of unknown outcome does not make that one undone", () => {
  const played = new ManualSaga(order.run("pay", none).undo(none as () => never, once));
  played.finishWork("do pay", failed);
  played.tick(120_000);
  expect(played.finishWork("do pay", refused)).toBe("compensating");
  expect(played.finishWork("undo pay")).toBe("compensated");
});

test("S-07: an undo that fails for good parks with an incident, and a person settles it", () => {
  const played = new ManualSaga(twoSends);
  played.reply("do reserve");
  played.reply("do charge");
  expect(played.by("compensate")).toBe("compensating");
  expect(played.reply("undo charge", refused)).toBe("failed");
  expect(played.listIncident()).toEqual(["charge"]);
  expect(played.applyDecision("settle", "charge")).toBe("compensating");
  expect(played.reply("undo reserve", { kind: "done" })).toBe("compensated");
});

test("S-09: an undo by command of what was no command stands for its earlier tries, so that it happens once", () => {
  const local = order
    .run("charge", none, { timeout: 1_000 })
    .undo(Release, none, { retry: { firstDelay: 0 } });
  const played = new ManualSaga(local);
  played.finishWork("do charge", { kind: "failed", error: "broken", permanent: true });
  expect(played.command("undo charge", 1).supersedes).toBeUndefined();
  played.tick(1_000);
  played.tick(0);
  expect(played.command("undo charge", 2).supersedes).toEqual({ type: Release.name, ids: ["m1"] });
});

describe("dead letters of failed commands", () => {
  const permanent = { ...failed, permanent: true } as const;
  const discarded = (played: ManualSaga): readonly (readonly string[])[] =>
    played.effects.flatMap((effect) => (effect.kind === "discard dead letters" ? [effect.commands] : []));
  const parked = (): ManualSaga => {
    const both = order
      .all("both", (g) =>
        g
          .send("a", Reserve, none, { undo: [Release, none] })
          .send("b", Reserve, none, { undo: [Release, none] }),
      )
      .send("last", Reserve, none)
      .undo(Release, none);
    const played = new ManualSaga(both);
    for (const step of ["do both.a", "do both.b"]) played.reply(step);
    played.reply("do last", refused);
    for (const step of ["undo both.a", "undo both.b"]) played.reply(step, permanent);
    return played;
  };

  test("an undo that its consumer gave up is not sent again", () => {
    const played = parked();
    expect(played.status).toBe("failed");
    expect(played.listSent().filter((sent) => sent.startsWith("undo"))).toEqual([
      "undo both.a",
      "undo both.b",
    ]);
    expect(discarded(played)).toEqual([]);
  });

  test("each is discarded when its own step is resolved, even if the incident stays open", () => {
    const played = parked();
    const [a, b] = [played.command("undo both.a").id, played.command("undo both.b").id];
    const by = { actor: "ann", reason: "test" };
    expect(played.move({ kind: "settle", stepPath: "both.a", by })).toBe("failed");
    expect(discarded(played)).toEqual([[a]]);
    expect(played.move({ kind: "retry", by })).toBe("compensating");
    expect(discarded(played)).toEqual([[a], [b]]);
    expect(played.reply("undo both.b", { kind: "done" })).toBe("compensated");
    expect(discarded(played)).toEqual([[a], [b]]);
  });

  test("a late success of the command resolves it as well", () => {
    const played = parked();
    for (const step of ["undo both.a", "undo both.b"]) played.reply(step, { kind: "done" });
    expect(played.status).toBe("compensated");
    expect(discarded(played).flat()).toEqual([
      played.command("undo both.a").id,
      played.command("undo both.b").id,
    ]);
  });

  test("a local undo has no command, so none is discarded", () => {
    const local = order.run("note", () => 1).undo(() => undefined);
    const played = new ManualSaga(local.run("fail", () => 1).noUndo("it does nothing"));
    played.finishWork("do note");
    played.finishWork("do fail", refused);
    expect(played.finishWork("undo note", permanent)).toBe("failed");
    played.move({ kind: "settle", stepPath: "note", by: { actor: "ann", reason: "test" } });
    expect(played.status).toBe("compensated");
    expect(discarded(played)).toEqual([]);
  });
});
