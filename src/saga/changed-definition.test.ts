import { describe, expect, test } from "vitest";
import { command, event } from "sagabox";
import { z } from "zod";
import { ManualSaga } from "../../test/support/manual-saga.ts";
import { saga } from "./index.ts";

const any = z.object({});
const Reserve = command("stock.reserve", { schema: any, reply: any });
const Release = command("stock.release", { schema: any });
const Approved = event("approvals.given", { schema: z.object({ id: z.string() }), key: (d) => d.id });
const order = saga("order", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id });
const none = (): Record<string, never> => ({});
const refused = { kind: "refused", error: "no" } as const;

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

describe("a renamed step that was done", () => {
  test("is not skipped when the instance is undone: an incident names it", () => {
    const played = begun();
    played.by("cancel");
    played.deploy(ordered("hold"));
    expect(played.reply("undo charge", { kind: "done" })).toBe("failed");
    expect(played.listIncident()).toEqual(["reserve"]);
    expect(played.incidentError()).toBe('it cannot be undone: the definition has no step "reserve"');
  });

  test("is not done again under its new name: the instance is parked", () => {
    const played = begun().deploy(ordered("hold"));
    expect(played.reply("do charge")).toBe("failed");
    expect(played.listSent()).toEqual(["do reserve", "do charge"]);
    expect(played.listIncident()).toEqual(["reserve"]);
    expect(played.incidentError()).toBe('the definition has no step "reserve"');
  });

  test("does not turn the instance back when another step fails: nothing is undone before a person decides", () => {
    const played = begun().deploy(ordered("hold"));
    expect(played.reply("do charge", refused)).toBe("failed");
    expect(played.listIncident()).toEqual(["reserve"]);
    expect(played.by("cancel")).toBe("failed");
    expect(played.listIncident()).toEqual(["reserve"]);
    expect(played.applyDecision("settle", "reserve")).toBe("compensated");
    expect(played.listIncident()).toBeUndefined();
  });

  test("continues alone with the definition that has it, without doing anything twice", () => {
    const played = begun().deploy(ordered("hold"));
    played.tick(1);
    expect([played.status, played.listIncident()]).toEqual(["failed", ["reserve"]]);
    expect(played.tick(1)).toBe("nothing is due");
    expect(played.deploy(ordered()).reply("do charge")).toBe("completed");
    expect(played.listSent()).toEqual(["do reserve", "do charge"]);
  });
});

test("a done command whose step only waits now is not skipped when the instance is undone", () => {
  const waits = order
    .delay("reserve", "1s")
    .send("charge", Reserve, none, { timeout: "5s" })
    .undo(Release, none);
  const played = begun().deploy(waits);
  expect(played.reply("do charge", refused)).toBe("failed");
  expect(played.listIncident()).toEqual(["reserve"]);
  expect(played.incidentError()).toBe("it cannot be undone: the definition has no undo for it");
  expect(played.applyDecision("settle", "reserve")).toBe("compensated");
});

describe("what a person may decide about a step that is missing", () => {
  const parked = (): ManualSaga => {
    const played = begun().deploy(ordered("hold"));
    played.reply("do charge");
    return played;
  };

  test("a retry is refused while the step is missing, and continues once it is there", () => {
    const played = parked();
    const why = 'the definition has no step "reserve"';
    expect(played.applyDecision("retry", "reserve")).toContain(why);
    expect(played.move({ kind: "retry", by: { actor: "ann", reason: "test" } })).toContain(why);
    expect(played.state.records).toHaveProperty("reserve");
    expect(played.deploy(ordered()).applyDecision("retry", "reserve")).toBe("completed");
    expect(played.listSent()).toEqual(["do reserve", "do charge"]);
  });

  test("a skip continues without it", () => {
    const played = parked();
    expect(played.applyDecision("skip", "reserve")).toBe("running");
    expect(played.listSent()).toEqual(["do reserve", "do charge", "do hold"]);
    expect(played.reply("do hold")).toBe("completed");
  });

  test("a settle is refused on the way forward: it was not the doing that is missing", () => {
    expect(parked().applyDecision("settle", "reserve")).toContain('the definition has no step "reserve"');
  });

  test("an undo that is missing can be retried, settled or skipped", () => {
    const undone = (): ManualSaga => {
      const played = parked();
      played.by("cancel");
      played.reply("undo charge", { kind: "done" });
      return played;
    };
    const retried = undone();
    expect(retried.applyDecision("retry", "reserve")).toContain('the definition has no step "reserve"');
    expect(retried.deploy(ordered()).applyDecision("retry", "reserve")).toBe("compensating");
    expect(retried.reply("undo reserve", { kind: "done" })).toBe("compensated");
    expect(undone().applyDecision("settle", "reserve")).toBe("compensated");
    expect(undone().applyDecision("skip", "reserve")).toBe("compensated");
  });
});

describe("a missing step under way", () => {
  test("parks the instance, its reply is kept, and it continues where the step is known", () => {
    const played = begun().deploy(ordered("reserve", "pay"));
    expect(played.tick(5_000)).toBe("failed");
    expect(played.listIncident()).toEqual(["charge"]);
    expect(played.listSent()).toEqual(["do reserve", "do charge"]);
    expect(played.reply("do charge")).toBe("failed");
    expect(played.deploy(ordered()).applyDecision("retry", "charge")).toBe("completed");
  });

  test("that is refused did nothing: the renamed step begins", () => {
    const played = begun().deploy(ordered("reserve", "pay"));
    played.tick(5_000);
    expect(played.reply("do charge", refused)).toBe("running");
    expect(played.listSent()).toEqual(["do reserve", "do charge", "do pay"]);
  });

  test("whose outcome is unknown is an incident on the way back", () => {
    const played = begun().deploy(ordered("reserve", "pay"));
    expect(played.by("cancel")).toBe("failed");
    expect(played.listIncident()).toEqual(["charge"]);
    expect(played.reply("do charge")).toBe("failed");
    expect(played.applyDecision("settle", "charge")).toBe("compensating");
    expect(played.reply("undo reserve", { kind: "done" })).toBe("compensated");
  });

  test("that only waited is nothing to undo", () => {
    const waits = (name: string) =>
      reserved("reserve").waitFor(name as "approval", Approved, { timeout: "1d" });
    const played = new ManualSaga(waits("approval"));
    played.reply("do reserve");
    expect(played.deploy(waits("consent")).by("cancel")).toBe("compensating");
    expect(played.reply("undo reserve", { kind: "done" })).toBe("compensated");
  });

  test("whose undo is under way is an incident, which a late success of the undo ends", () => {
    const played = begun();
    played.by("cancel");
    played.deploy(ordered("reserve", "pay"));
    expect(played.tick(1)).toBe("failed");
    expect(played.listIncident()).toEqual(["charge"]);
    expect(played.reply("undo charge", { kind: "done" })).toBe("compensating");
  });
});

describe("steps of groups, branches, repetitions and children", () => {
  test("a member of a group", () => {
    const grouped = (name: string) =>
      order.all("both", (g) =>
        g
          .send("a", Reserve, none, { undo: [Release, none] })
          .send(name, Reserve, none, { undo: [Release, none] }),
      );
    const played = new ManualSaga(grouped("b"));
    played.reply("do both.b");
    expect(played.deploy(grouped("c")).reply("do both.a", refused)).toBe("failed");
    expect(played.listIncident()).toEqual(["both.b"]);
    expect(played.listSent()).toEqual(["do both.a", "do both.b"]);
  });

  test("the winner of a group", () => {
    const grouped = (name: string) =>
      order.any("first", (g) =>
        g
          .send("a", Reserve, none, { undo: [Release, none] })
          .send(name, Reserve, none, { undo: [Release, none] }),
      );
    const played = new ManualSaga(grouped("b"));
    played.reply("do first.b");
    expect(played.deploy(grouped("c")).reply("undo first.a", { kind: "done" })).toBe("failed");
    expect(played.listIncident()).toEqual(["first.b"]);
  });

  test("a step of a branch, a way of it, and the branch itself", () => {
    const branched = (name: string, way: string, step: string) =>
      order.choose(name, () => "fast", {
        [way]: (s) =>
          s
            .send(step as "ship", Reserve, none)
            .undo(Release, none)
            .delay("pause", 10),
        other: (s) => s.delay("later", 10),
      });
    for (const [changed, stepPath, why] of [
      [branched("how", "fast", "fly"), "ship", 'the definition has no step "ship"'],
      [branched("how", "quick", "ship"), "how", 'the choice "how" has no way "fast"'],
      [branched("which", "fast", "ship"), "how", 'the definition has no choice "how"'],
    ] as const) {
      const played = new ManualSaga(branched("how", "fast", "ship"));
      expect(played.deploy(changed).reply("do ship")).toBe("failed");
      expect([played.listIncident(), played.incidentError()]).toEqual([[stepPath], why]);
      expect(played.applyDecision("skip", stepPath)).not.toBe("failed");
    }
  });

  test("a repetition, and a step that left it", () => {
    const repeated = (name: string) =>
      order.repeat(
        name,
        (s) => s.send("poll", Reserve, none).noUndo("a question"),
        () => false,
        { max: 3 },
      );
    const played = new ManualSaga(repeated("loop"));
    played.reply("do poll@1");
    expect(played.deploy(repeated("circle")).reply("do poll@2")).toBe("failed");
    expect(played.listIncident()).toEqual(["loop"]);
    const moved = new ManualSaga(repeated("loop"));
    const once = order.send("poll", Reserve, none).noUndo("a question");
    expect(moved.deploy(once).reply("do poll@1")).toBe("failed");
    expect(moved.listIncident()).toContain("poll@1");
    expect(moved.listSent()).toEqual(["do poll@1"]);
  });

  test("a child saga", () => {
    const child = saga("child", { version: 1, input: any, key: () => "k" }).delay("pause", 10);
    const parent = (name: string) =>
      order
        .child(name as "part", child, none)
        .undoChild()
        .delay("pause", 10);
    const played = new ManualSaga(parent("part"));
    const [childId = ""] = played.state.records["part"]?.ids ?? [];
    played.deploy(parent("piece"));
    expect(played.move({ kind: "child", childId, end: "completed", results: {} })).toBe("failed");
    expect(played.listIncident()).toEqual(["part"]);
    expect(played.by("compensate")).toBe("failed");
    expect(played.listIncident()).toEqual(["part"]);
  });

  test("a choice that a person settled has nothing to undo", () => {
    const broken = order
      .send("first", Reserve, none)
      .pivot()
      .when(
        "maybe",
        () => {
          throw new Error("broken");
        },
        (s) => s.delay("pause", 10),
      );
    const played = new ManualSaga(broken);
    expect(played.reply("do first")).toBe("failed");
    expect(played.applyDecision("settle", "maybe")).toBe("completed");
  });
});
