import { describe, expect, test } from "vitest";
import { command, event } from "sagabox";
import { z } from "zod";
import { ManualSaga } from "../../test/support/manual-saga.ts";
import { saga } from "./index.ts";

const any = z.object({});
const Reserve = command("stock.reserve", { schema: any, reply: any });
const Release = command("stock.release", { schema: any });
const Paid = event("payments.paid", { schema: any, key: () => "o1" });
const options = { version: 1, input: z.object({ id: z.string() }), key: (i: { id: string }) => i.id };
const order = saga("order", options);
const none = (): Record<string, never> => ({});
const nothing = (): void => undefined;
const refused = { kind: "refused", error: "no" } as const;
const failed = { kind: "failed", error: "broken" } as const;
const once = { retry: { maxAttempts: 1 } };

describe("groups", () => {
  const member = { undo: [Release, none], timeout: "5s" } as const;
  const all = order.all("both", (g) => g.send("a", Reserve, none, member).send("b", Reserve, none, member), {
    whenOneFails: "abandon",
  });
  const any2 = order
    .any("either", (g) => g.send("a", Reserve, none, member).run("b", none, { undo: nothing }))
    .run("after", none)
    .undo(nothing);

  test("all begin together, and are undone together", () => {
    const played = new ManualSaga(all);
    expect(played.listSent()).toEqual(["do both.a", "do both.b"]);
    played.reply("do both.a");
    expect(played.reply("do both.b", refused)).toBe("compensating");
    expect(played.reply("undo both.a", { kind: "done" })).toBe("compensated");
  });

  test("when one fails the others are abandoned, and undone since they may have been done", () => {
    const played = new ManualSaga(all);
    expect(played.reply("do both.b", refused)).toBe("compensating");
    expect(played.listSent()).toContain("undo both.a");
  });

  test("the first of any is enough; the others are undone before it continues", () => {
    const played = new ManualSaga(any2);
    played.finishWork("do either.b");
    expect([played.listSent(), played.step("after")]).toEqual([["do either.a", "undo either.a"], undefined]);
    played.reply("undo either.a", { kind: "done" });
    expect(played.step("after")).toBe("in_progress");
  });

  test("a run that may be running in this moment is waited for before it is undone", () => {
    const played = new ManualSaga(any2);
    played.reply("do either.a");
    expect(played.state.records["either.b"]).toMatchObject({ status: "in_progress" });
    expect(played.by("cancel")).toBe("compensating");
    expect(played.step("either.b")).toBe("in_progress");
    played.finishWork("do either.b");
    expect(played.step("either.b")).toBe("compensating");
  });

  test("one that lost and succeeds after the saga completed is undone, and no deadline turns the saga back", () => {
    const hurried = saga("hurried", { ...options, deadline: "1m" }).any("either", (g) =>
      g.send("a", Reserve, none, member).send("b", Reserve, none, member),
    );
    const played = new ManualSaga(hurried);
    played.reply("do either.a");
    expect(played.reply("undo either.b", { kind: "done" })).toBe("completed");
    played.nowMs += 120_000;
    expect(played.reply("do either.b")).toBe("running");
    expect(played.by("cancel")).toBe("it has completed");
    expect(played.tick(1)).toBe("nothing is due");
    expect(played.reply("undo either.b", { kind: "done" })).toBe("completed");
  });

  test("when an operator has skipped all of any, it continues without them", () => {
    const forward = order
      .tx("begin", none)
      .pivot()
      .any("either", (g) => g.send("a", Reserve, none));
    const played = new ManualSaga(forward);
    played.finishWork("do begin");
    expect(played.reply("do either.a", refused)).toBe("failed");
    expect(played.applyDecision("skip", "either.a")).toBe("completed");
  });
});

describe("choices, repetitions and waits", () => {
  test("a way that is not taken has no steps", () => {
    const played = new ManualSaga(
      order.when(
        "rich",
        () => false,
        (s) => s.send("gift", Reserve, none).noUndo("small"),
      ),
    );
    expect([played.status, played.listSent()]).toEqual(["completed", []]);
  });

  test("a repetition has a place for each round, and is undone backwards", () => {
    const twice = order.repeat(
      "rounds",
      (s) => s.run("once", () => 1).undo(nothing),
      (c) => c.steps.once >= 2,
      { max: 3 },
    );
    const played = new ManualSaga(twice.run("end", none).noUndo("it fails"));
    played.finishWork("do once@1", { kind: "done", result: 1 });
    played.finishWork("do once@2", { kind: "done", result: 2 });
    played.finishWork("do end", refused);
    expect([played.step("once@2"), played.step("once@1")]).toEqual(["compensating", "completed"]);
    played.finishWork("undo once@2");
    expect(played.finishWork("undo once@1")).toBe("compensated");
  });

  test("one that is never over is parked past the pivot: a person gives it a round, or ends it", () => {
    const played = new ManualSaga(
      order
        .tx("begin", none)
        .pivot()
        .repeat(
          "rounds",
          (s) => s.run("once", none),
          () => false,
          { max: 1 },
        ),
    );
    played.finishWork("do begin");
    expect(played.finishWork("do once@1")).toBe("failed");
    played.applyDecision("retry", "rounds");
    expect(played.finishWork("do once@2")).toBe("failed");
    expect(played.listIncident()).toEqual(["rounds"]);
    expect(played.applyDecision("settle", "rounds")).toBe("completed");
  });

  test("an incident names what is stuck now, also when it never ceased to be parked", () => {
    const wrong = (): boolean => {
      throw new Error("no idea");
    };
    const parked = order.tx("begin", none).pivot().run("a", none, once);
    const played = new ManualSaga(parked.when("way", wrong, (s) => s.run("b", none)));
    played.finishWork("do begin");
    expect(played.finishWork("do a", failed)).toBe("failed");
    expect(played.listIncident()).toEqual(["a"]);
    expect(played.applyDecision("settle", "a")).toBe("failed");
    expect(played.listIncident()).toEqual(["way"]);
  });

  test("S-11: an event that comes early is kept for the step that waits for it", () => {
    const played = new ManualSaga(
      order.run("first", none).noUndo("x").waitFor("paid", Paid, { timeout: "1d" }),
    );
    played.move({ kind: "event", id: "e1", type: Paid.name, data: {} });
    expect(played.finishWork("do first")).toBe("completed");
  });
});

describe("children", () => {
  const part = saga("part", options).run("work", none).undo(nothing);
  const whole = saga("whole", options)
    .child("part", part, (c) => c.input)
    .undoChild()
    .run("last", none)
    .noUndo("it fails");
  const parent = { id: "p1", stepPath: "part" };

  test("S-20: the parent continues with its results, and undoes it", () => {
    const played = new ManualSaga(whole);
    const child = { kind: "child", childId: "m1" } as const;
    played.move({ ...child, end: "completed", results: { work: {} } });
    expect(played.finishWork("do last", refused)).toBe("compensating");
    expect(played.effects.at(-1)).toMatchObject({ kind: "revoke child", id: "m1" });
    expect(played.move({ ...child, end: "compensated" })).toBe("compensated");
  });

  test("S-20: it tells its parent how it ended, and is not compensated behind its back", () => {
    const played = new ManualSaga(part, parent);
    expect(played.finishWork("do work")).toBe("completed");
    expect(played.effects.at(-1)).toEqual({ kind: "tell parent", parentId: "p1", end: "completed" });
    expect(played.by("compensate")).toMatch("part of another saga");
    expect(played.move({ kind: "revoke" })).toBe("compensating");
  });

  test("one that runs out of time is not started a second time", () => {
    const timed = saga("timed", options)
      .child("part", part, (c) => c.input, { timeout: "1s" })
      .undoChild();
    const played = new ManualSaga(timed);
    expect(played.tick(1_000)).toBe("compensating");
    expect(played.effects.filter(({ kind }) => kind === "start child")).toHaveLength(1);
  });
});

test("F6: a repetition whose test returns nothing continues; a choice that names no way fails where it stands", () => {
  const says = (answer: unknown) => (): never => answer as never;
  const again = order.repeat("again", (s) => s.run("one", none).undo(nothing), says(undefined), { max: 3 });
  const repeated = new ManualSaga(again);
  expect(repeated.finishWork("do one@1", { kind: "done" })).toBe("running");
  for (const name of [undefined, "toString"]) {
    const past = order.run("point", none).pivot();
    const chosen = new ManualSaga(past.choose("way", says(name), { left: (s) => s.run("one", none) }));
    expect(chosen.finishWork("do point", { kind: "done" })).toBe("failed");
    expect(chosen.effects.at(-1)).toMatchObject({ kind: "open incident", stepPaths: ["way"] });
  }
});
