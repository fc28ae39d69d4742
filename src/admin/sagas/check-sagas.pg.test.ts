import { expect, test } from "vitest";
import { command, event, permanent, refuse, saga } from "sagabox";
import { z } from "zod";
import { sagaHarness } from "../../../test/support/saga-fixture.ts";

const Reserve = command("stock.reserve", {
  schema: z.object({ id: z.string().min(1) }),
  reply: z.object({ r: z.string() }),
});
const Release = command("stock.release", { schema: z.object({ id: z.string() }) });
const Approved = event("approvals.given", { schema: z.object({ id: z.string() }), key: (d) => d.id });
const options = { version: 1, input: z.object({ id: z.string() }), key: (i: { id: string }) => i.id };

/** Every kind of step, with the faults that an id asks for. */
const original = () =>
  saga("order", options)
    .send("reserve", Reserve, (c) => ({ id: c.input.id === "unsendable" ? "" : c.input.id }))
    .undo(Release, (c) => c.input)
    .run(
      "charge",
      (c) => {
        if (c.input.id === "declined") throw refuse("no money");
        if (c.attempt === 1) throw new Error("a hiccup");
        return c.attempt;
      },
      { retry: { maxAttempts: 3, firstDelay: 10, maxDelay: 20 } },
    )
    .undo(
      (c) => {
        if (c.input.id === "stubborn") throw permanent("no refund");
      },
      { retry: { maxAttempts: 1 } },
    )
    .tx("book", () => 1)
    .noUndo("a note")
    .delay("pause", 10)
    .waitFor("approval", Approved, { timeout: "1d" });

async function lived() {
  const house = await sagaHarness();
  const { bus, start, at } = house;
  const order = original();
  bus.register(order);
  bus.on(Reserve, { consumer: "stock" }, async ({ data }) => ({ r: `r-${data.id}` }));
  bus.on(Release, { consumer: "stock" }, async () => undefined);
  await bus.run();
  const ids: Record<string, string> = {};
  for (const id of ["waiting", "declined", "stubborn", "unsendable", "done"]) {
    ids[id] = (await start(order, { id })).sagaId;
  }
  await bus.transaction((tx) => tx.publish(Approved, { id: "done" }));
  await at(ids["done"] ?? "", "completed");
  await at(ids["waiting"] ?? "", "running", "approval");
  await at(ids["stubborn"] ?? "", "running", "approval");
  await bus.sagas.cancel(ids["stubborn"] ?? "", { actor: "ann", reason: "test" });
  await at(ids["stubborn"] ?? "", "failed");
  await at(ids["declined"] ?? "", "compensated");
  await at(ids["unsendable"] ?? "", "compensated");
  return { ...house, ids };
}

test("F8: histories recorded in the database are the same on the same definitions", async () => {
  const { bus, another } = await lived();
  const unchanged = { differences: [], unfitSteps: [], unfitInstances: 0 };
  const definitions = [{ type: "order", version: 1, verdict: "same", ...unchanged }];
  const none = { diverges: 0, stuck: 0, skipped: 0, strangers: [], findings: [] };
  const same = { checked: 5, same: 5, ...none, definitions };
  expect(await bus.sagas.check()).toEqual(same);
  const other = another("other");
  other.register(original());
  expect(await other.sagas.check()).toEqual(same);
  expect(await other.sagas.check({ ended: 1 })).toMatchObject({ checked: 3 });
  expect(await other.sagas.check({ type: "nothing" })).toMatchObject({ checked: 0 });
});

test("F8: a changed definition diverges, one that lacks a step or a version leaves instances stuck", async () => {
  const { another, ids } = await lived();
  const changed = another("changed");
  changed.register(
    saga("order", options)
      .send("reserve", Reserve, (c) => c.input)
      .undo(Release, (c) => c.input)
      .run("charge", () => 1, { retry: { maxAttempts: 1 } })
      .undo(() => undefined)
      .tx("book", () => 1)
      .noUndo("a note")
      .delay("pause", 10),
  );
  const report = await changed.sagas.check();
  expect(report).toMatchObject({ checked: 5, same: 2, stuck: 1 });
  const of = (name: string) => report.findings.find(({ id }) => id === ids[name]);
  expect(of("waiting")).toMatchObject({ verdict: "stuck", step: "approval", status: "running" });
  expect(of("done")).toMatchObject({ verdict: "diverges", key: "done", status: "completed" });
  expect(of("stubborn")).toMatchObject({ verdict: "diverges", step: "charge" });

  const newest = another("newest");
  newest.register(saga("order", { ...options, version: 2 }).delay("pause", 10));
  expect(await newest.sagas.check()).toMatchObject({ checked: 2, stuck: 2, skipped: 3, strangers: [] });
});

test("F8: sagas of names that are not registered here are told apart from those that are stuck", async () => {
  const { another } = await lived();
  const elsewhere = another("elsewhere");
  elsewhere.register(saga("parcel", options).delay("pause", 10));
  const unchanged = { differences: [], unfitSteps: [], unfitInstances: 0 };
  const definitions = [{ type: "parcel", version: 1, verdict: "new", ...unchanged }];
  const none = { checked: 0, same: 0, diverges: 0, stuck: 0, skipped: 0, definitions, findings: [] };
  expect(await elsewhere.sagas.check()).toEqual({ ...none, strangers: [{ type: "order", open: 2 }] });
  expect(await elsewhere.sagas.check({ type: "parcel" })).toEqual({ ...none, strangers: [] });
});

test("F11: an instance is drawn on its definition where that is known, else along the time", async () => {
  const { bus, another, ids } = await lived();
  const drawn = await bus.sagas.diagram(ids["declined"] ?? "");
  expect(drawn).toMatch(/^flowchart TD\n/);
  expect(drawn).toMatch(/charge<br\/>.*failed \+.*: no money/);
  expect(await another("ignorant").sagas.diagram(ids["declined"] ?? "")).toMatch(
    /^gantt\n.*title order declined, compensated\n/,
  );
});
