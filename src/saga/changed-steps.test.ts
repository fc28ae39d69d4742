import { describe, expect, test } from "vitest";
import { command, event } from "sagabox";
import { z } from "zod";
import { ManualSaga } from "../../test/support/manual-saga.ts";
import { saga, type SagaDefinition } from "./index.ts";

const any = z.object({});
const Reserve = command("stock.reserve", { schema: any, reply: any });
const Release = command("stock.release", { schema: any });
const Approved = event("approvals.given", { schema: z.object({ id: z.string() }), key: (d) => d.id });
const order = saga("order", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id });
const none = (): Record<string, never> => ({});
const refused = { kind: "refused", error: "no" } as const;
const failed = { kind: "failed", error: "broken" } as const;

const reserved = (name: string) => order.send(name as "reserve", Reserve, none).undo(Release, none);
const ordered = (first = "reserve", second = "charge") =>
  reserved(first)
    .send(second as "charge", Reserve, none, { timeout: "5s" })
    .undo(Release, none);

/** The first step is done, the second one has been sent. */
const begun = (): ManualSaga => {
  const played = new ManualSaga(ordered());
  played.reply("do reserve");
  return played;
};

describe("a step that is there, but another one", () => {
  test("of another kind while its reply is awaited", () => {
    const local = reserved("reserve")
      .run("charge", () => 1)
      .undo(() => undefined);
    const played = begun().deploy(local);
    expect(played.tick(5_000)).toBe("failed");
    expect(played.incidentError()).toBe("a reply is awaited, and the step is of the kind run now");
    expect(played.applyDecision("retry", "charge")).toContain("a reply is awaited");
    expect(played.reply("do charge")).toBe("completed");
  });

  test("of another kind while it runs or waits", () => {
    const runs = order.run("work", () => 1).undo(() => undefined);
    const sends = order.send("work", Reserve, none).undo(Release, none);
    const waits = order.waitFor("work", Approved, { timeout: "1d" });
    const ran = new ManualSaga(runs).deploy(sends);
    expect(ran.tick(1)).toBe("failed");
    expect(ran.incidentError()).toBe("it runs in a worker, and the step is of the kind send now");
    expect(ran.listSent()).toEqual([]);
    expect(ran.finishWork("do work")).toBe("completed");
    const waited = new ManualSaga(waits).deploy(runs);
    expect(waited.tick(1)).toBe("failed");
    expect(waited.incidentError()).toBe("it waits, and the step is of the kind run now");
  });

  test("without its undo while it is being undone", () => {
    const played = begun();
    played.by("cancel");
    const changed = reserved("reserve").send("charge", Reserve, none).noUndo("it is free");
    expect(played.deploy(changed).tick(1)).toBe("failed");
    expect(played.listIncident()).toEqual(["charge"]);
    expect(played.incidentError()).toBe("it cannot be undone: the definition has no undo for it");
    expect(played.applyDecision("retry", "charge")).toContain("the definition has no undo for it");
    expect(played.applyDecision("skip", "charge")).toBe("compensating");
  });

  test("moved across the pivot: done, to be undone, and without an undo", () => {
    const before = reserved("reserve").send("charge", Reserve, none).pivot();
    const after = order.send("charge", Reserve, none).pivot().send("reserve", Reserve, none);
    const played = new ManualSaga(before);
    played.reply("do reserve");
    expect(played.deploy(after).reply("do charge", refused)).toBe("failed");
    expect(played.listIncident()).toEqual(["reserve"]);
    expect(played.incidentError()).toBe("it cannot be undone: the definition has no undo for it");
  });

  test("of another order is done and undone as before", () => {
    const played = begun().deploy(ordered("charge", "reserve"));
    expect(played.reply("do charge", failed)).toBe("compensating");
  });
});

describe("a step that began with an undo, in a definition that has none for it", () => {
  const noUndo = "it cannot be undone: the definition has no undo for it";
  const rest = { timeout: "5s" } as const;
  const runs = order.run("work", () => 1).undo(() => undefined);
  const began = runs.send("charge", Reserve, none, rest).undo(Release, none);
  /** `work` is done by a worker with the first definition; another one has the second when `charge` is refused. */
  const taken = (changed: { readonly definition: SagaDefinition }): ManualSaga => {
    const played = new ManualSaga(began);
    played.finishWork("do work");
    played.deploy(changed).reply("do charge", refused);
    return played;
  };
  const charged = order.send("charge", Reserve, none, rest).undo(Release, none);
  const child = saga("child", { version: 1, input: any, key: () => "k" }).delay("pause", 10);

  test.each([
    ["noUndo", order.run("work", () => 1).noUndo("it is free"), noUndo],
    ["a delay", order.delay("work", 10), noUndo],
    ["a wait", order.waitFor("work", Approved, { timeout: "1d" }), noUndo],
    ["a tx without an undo", order.tx("work", () => 1).noUndo("it is free"), noUndo],
    [
      "a tx",
      order.tx("work", () => 1).undo(() => undefined),
      "it cannot be undone: it began as a step of the kind run, and the step is of the kind tx now",
    ],
    [
      "a command",
      order.send("work", Reserve, none).undo(Release, none),
      "it cannot be undone: it began as a step of the kind run, and the step is of the kind send now",
    ],
    [
      "a child saga",
      order.child("work", child, none).undoChild(),
      "it cannot be undone: it began as a step of the kind run, and the step is of the kind child now",
    ],
  ])("is an incident: %s", (_, first, why) => {
    const played = taken(first.send("charge", Reserve, none, rest).undo(Release, none));
    expect([played.status, played.listIncident(), played.incidentError()]).toEqual(["failed", ["work"], why]);
    expect(played.applyDecision("retry", "work")).toContain(why.replace("it cannot be undone: ", ""));
    expect(played.deploy(began).applyDecision("retry", "work")).toBe("compensating");
    expect(played.finishWork("undo work")).toBe("compensated");
  });

  test("is an incident where a choice has its name now", () => {
    const choice = order.when(
      "work",
      () => false,
      (s) => s.delay("pause", 10),
    );
    const played = taken(choice.send("charge", Reserve, none, rest).undo(Release, none));
    expect([played.status, played.listIncident()]).toEqual(["failed", ["work"]]);
  });

  test("is an incident if its outcome is unknown, if it succeeds late, and if the instance had completed", () => {
    const free = order.send("charge", Reserve, none, rest).noUndo("it is free");
    const unknown = new ManualSaga(charged).deploy(free);
    expect(unknown.tick(5_000)).toBe("failed");
    expect(unknown.incidentError()).toBe(noUndo);
    const late = new ManualSaga(charged);
    late.reply("do charge", refused);
    expect(late.status).toBe("compensated");
    expect(late.deploy(free).reply("do charge")).toBe("failed");
    expect(late.incidentError()).toBe(noUndo);
    const completed = new ManualSaga(charged);
    expect(completed.reply("do charge")).toBe("completed");
    expect(completed.deploy(free).by("compensate")).toBe("failed");
    expect(completed.incidentError()).toBe(noUndo);
  });

  test("is an incident in a group: a member that was done, and one that another one beat", () => {
    type Undone = { readonly undo: readonly [typeof Release, typeof none] | { readonly none: string } };
    const undone: Undone = { undo: [Release, none] };
    const free: Undone = { undo: { none: "it is free" } };
    const all = (b: Undone) =>
      order.all("both", (g) => g.send("a", Reserve, none, undone).send("b", Reserve, none, b));
    const both = new ManualSaga(all(undone));
    both.reply("do both.b");
    expect(both.deploy(all(free)).reply("do both.a", refused)).toBe("failed");
    expect([both.listIncident(), both.incidentError()]).toEqual([["both.b"], noUndo]);
    const anyOf = (b: Undone) =>
      order.any("first", (g) => g.send("a", Reserve, none, undone).send("b", Reserve, none, b));
    const beaten = new ManualSaga(anyOf(undone)).deploy(anyOf(free));
    expect(beaten.reply("do first.a")).toBe("failed");
    expect([beaten.listIncident(), beaten.incidentError()]).toEqual([["first.b"], noUndo]);
    expect(beaten.applyDecision("settle", "first.b")).toBe("completed");
  });

  test("is an incident in the round of a repetition in which it began", () => {
    const repeated = (step: (s: typeof order) => typeof order) =>
      order.repeat("loop", step, () => false, { max: 3 });
    const undone = repeated((s) => s.send("poll", Reserve, none).undo(Release, none) as never);
    const free = repeated((s) => s.send("poll", Reserve, none).noUndo("a question") as never);
    const played = new ManualSaga(undone);
    played.reply("do poll@1");
    expect(played.deploy(free).reply("do poll@2", refused)).toBe("failed");
    expect([played.listIncident(), played.incidentError()]).toEqual([["poll@1"], noUndo]);
  });

  test("is an incident if it is a child saga, which a command cannot undo", () => {
    const parent = order.child("part", child, none).undoChild();
    for (const [changed, why] of [
      [order.child("part", child, none).noUndo("it is free"), noUndo],
      [
        order.send("part", Reserve, none).undo(Release, none),
        "it cannot be undone: it began as a step of the kind child, and the step is of the kind send now",
      ],
    ] as const) {
      const played = new ManualSaga(parent);
      const [childId = ""] = played.state.records["part"]?.ids ?? [];
      played.move({ kind: "child", childId, end: "completed", results: {} });
      expect(played.deploy(changed).by("compensate")).toBe("failed");
      expect(played.incidentError()).toBe(why);
      expect(played.listSent()).toEqual([]);
    }
  });

  test("may be retried as a step of another kind only if it certainly did not happen", () => {
    const first = order.send("first", Reserve, none).pivot().send("work", Reserve, none);
    const played = new ManualSaga(first);
    played.reply("do first");
    expect(played.reply("do work", refused)).toBe("failed");
    const changed = order
      .send("first", Reserve, none)
      .pivot()
      .run("work", () => 1);
    expect(played.deploy(changed).applyDecision("retry", "work")).toBe("completing");
    expect(played.finishWork("do work")).toBe("completed");
    const unknown = new ManualSaga(first);
    unknown.reply("do first");
    unknown.reply("do work", { kind: "failed", error: "broken", permanent: true });
    const why = "it began as a step of the kind send, and the step is of the kind run now";
    expect(unknown.deploy(changed).applyDecision("retry", "work")).toContain(why);
    expect(unknown.applyDecision("settle", "work")).toBe("completed");
  });

  test("has no field for it in the state, unless it needs one; a record without fields is treated as before", () => {
    const played = new ManualSaga(order.run("work", () => 1).noUndo("it is free"));
    expect(played.state.records["work"]).toMatchObject({ kind: "run" });
    expect(Object.keys(played.state.records["work"] ?? {})).not.toContain("undoable");
    const older = new ManualSaga(began);
    older.finishWork("do work");
    const record = older.state.records["work"];
    if (record !== undefined)
      older.state.records["work"] = { ...record, kind: undefined, undoable: undefined };
    const free = order.run("work", () => 1).noUndo("it is free");
    older.deploy(free.send("charge", Reserve, none, rest).undo(Release, none));
    expect(older.reply("do charge", refused)).toBe("compensated");
  });
});

describe("a step under way that another definition takes over", () => {
  test("may have run although it is a tx now: it is not taken for not done", () => {
    const runs = order.run("work", () => 1).undo(() => undefined);
    const inside = order.tx("work", () => 1).undo(() => undefined);
    const played = new ManualSaga(runs).deploy(inside);
    expect(played.by("cancel")).toBe("failed");
    expect(played.listIncident()).toEqual(["work"]);
  });

  test("is not completed by an event that only the new definition waits for", () => {
    const sends = order.send("work", Reserve, none).undo(Release, none);
    const played = new ManualSaga(sends).deploy(order.waitFor("work", Approved, { timeout: "1d" }));
    played.move({ kind: "event", id: "e1", type: "approvals.given", data: { id: "o1" } });
    expect([played.status, played.step("work")]).toEqual(["failed", "in_progress"]);
  });

  test("is not over by its timeout if it was a wait and is a delay now", () => {
    const waits = order.waitFor("work", Approved, { timeout: "5s" });
    const played = new ManualSaga(waits).deploy(order.delay("work", "5s"));
    expect(played.tick(5_000)).toBe("failed");
    expect(played.incidentError()).toBe("it waits, and the step is of the kind delay now");
  });

  test("that only waited is not undone by the undo of the step that replaced it", () => {
    const pause = order.delay("work", 10).send("charge", Reserve, none).undo(Release, none);
    const played = new ManualSaga(pause);
    played.tick(10);
    const changed = order.send("work", Reserve, none).undo(Release, none);
    played.deploy(changed.send("charge", Reserve, none).undo(Release, none));
    expect(played.reply("do charge", refused)).toBe("compensated");
    expect(played.listSent()).toEqual(["do charge"]);
  });

  test("whose undo is under way is not undone by an undo of another kind, unless a person says so", () => {
    const local = order.send("work", Reserve, none).undo(() => undefined);
    const played = new ManualSaga(local);
    played.by("cancel");
    const remote = order.send("work", Reserve, none).undo(Release, none);
    expect(played.deploy(remote).tick(1)).toBe("failed");
    expect(played.incidentError()).toBe(
      "it cannot be undone: its undo began as one of the kind run, and is of the kind send now",
    );
    expect(played.listSent()).toEqual(["do work"]);
    expect(played.applyDecision("retry", "work")).toBe("compensating");
    expect(played.reply("undo work", { kind: "done" })).toBe("compensated");
  });
});

describe("a pivot that began as one", () => {
  const pivot = order.send("charge", Reserve, none, { timeout: "5s" }).pivot();
  const free = order.send("charge", Reserve, none, { timeout: "5s" }).noUndo("it is free");
  const before = pivot.send("ship", Reserve, none, { retry: { maxAttempts: 1 } });
  const after = free.send("ship", Reserve, none).pivot();

  test("is one when it is done, although the definition has its pivot elsewhere", () => {
    const played = new ManualSaga(before).deploy(after);
    expect(played.reply("do charge")).toBe("completing");
    expect(played.reply("do ship", refused)).toBe("failed");
    expect(played.listIncident()).toEqual(["ship"]);
    expect(played.by("cancel")).toBe("it is past its pivot and can only go forward");
  });

  test("is not turned back from while its outcome is unknown", () => {
    const played = new ManualSaga(before).deploy(after);
    expect(played.by("cancel")).toContain("its pivot has begun");
    expect(played.tick(5_000)).toBe("failed");
    expect(played.listIncident()).toEqual(["charge"]);
  });
});
