import { describe, expect, test } from "vitest";
import { command, event } from "sagabox";
import { z } from "zod";
import { PlayedSaga } from "../../test/support/played-saga.ts";
import { saga } from "./index.ts";

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
const begun = (): PlayedSaga => {
  const played = new PlayedSaga(ordered());
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
    expect(played.decided("retry", "charge")).toContain("a reply is awaited");
    expect(played.reply("do charge")).toBe("completed");
  });

  test("of another kind while it runs or waits", () => {
    const runs = order.run("work", () => 1).undo(() => undefined);
    const sends = order.send("work", Reserve, none).undo(Release, none);
    const waits = order.waitFor("work", Approved, { timeout: "1d" });
    const ran = new PlayedSaga(runs).deploy(sends);
    expect(ran.tick(1)).toBe("failed");
    expect(ran.incidentError()).toBe("it runs in a worker, and the step is of the kind send now");
    expect(ran.sent()).toEqual([]);
    expect(ran.worked("do work")).toBe("completed");
    const waited = new PlayedSaga(waits).deploy(runs);
    expect(waited.tick(1)).toBe("failed");
    expect(waited.incidentError()).toBe("it waits, and the step is of the kind run now");
  });

  test("without its undo while it is being undone", () => {
    const played = begun();
    played.by("cancel");
    const changed = reserved("reserve").send("charge", Reserve, none).noUndo("it is free");
    expect(played.deploy(changed).tick(1)).toBe("failed");
    expect(played.incident()).toEqual(["charge"]);
    expect(played.incidentError()).toBe("it cannot be undone: the definition has no undo for it");
    expect(played.decided("retry", "charge")).toContain("the definition has no undo for it");
    expect(played.decided("skip", "charge")).toBe("compensating");
  });

  test("moved across the pivot: done, to be undone, and without an undo", () => {
    const before = reserved("reserve").send("charge", Reserve, none).pivot();
    const after = order.send("charge", Reserve, none).pivot().send("reserve", Reserve, none);
    const played = new PlayedSaga(before);
    played.reply("do reserve");
    expect(played.deploy(after).reply("do charge", refused)).toBe("failed");
    expect(played.incident()).toEqual(["reserve"]);
    expect(played.incidentError()).toBe("it cannot be undone: the definition has no undo for it");
  });

  test("of another order is done and undone as before", () => {
    const played = begun().deploy(ordered("charge", "reserve"));
    expect(played.reply("do charge", failed)).toBe("compensating");
  });
});
