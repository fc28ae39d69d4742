import { expect, test } from "vitest";
import { command, event, saga } from "sagabox";
import { z } from "zod";
import { runSaga, replyInput, workInput } from "../../test/support/manual-saga.ts";
import type { SagaDefinition } from "./index.ts";
import { replay, type RecordedSaga } from "./replay.ts";
import { statusMoves } from "./state.ts";

const Reserve = command("stock.reserve", {
  schema: z.object({ id: z.string() }),
  reply: z.object({ r: z.string() }),
});
const Release = command("stock.release", { schema: z.object({ id: z.string() }) });
const Paid = event("payments.paid", { schema: z.object({ id: z.string() }), key: (d) => d.id });
const options = { version: 1, input: z.object({ id: z.string() }), key: (i: { id: string }) => i.id };

const begun = () =>
  saga("order", options)
    .send("reserve", Reserve, (c) => ({ id: c.input.id }))
    .undo(Release, (c) => ({ id: c.input.id }));
const charged = () =>
  begun()
    .run("charge", () => 1, { retry: { maxAttempts: 2 } })
    .undo(() => undefined);
const order = charged().waitFor("paid", Paid, { timeout: "1h" }).definition;

const waiting = runSaga(order, { id: "o1" }, [
  [40, replyInput("reserve", { kind: "done", result: { r: "r1" } })],
  [100, workInput("charge", { kind: "failed", error: "time out" })],
  [900, workInput("charge", { kind: "done", result: 1 })],
]);

test("F8: what was recorded happens again on the same definition, whatever ids and chance were drawn", () => {
  const compensated = runSaga(order, { id: "o1" }, [
    [40, replyInput("reserve", { kind: "done", result: { r: "r1" } })],
    [100, workInput("charge", { kind: "refused", error: "no money" })],
    [200, replyInput("reserve", { kind: "failed", error: "busy" }, true)],
    [2_000, { kind: "tick" }],
    [2_100, replyInput("reserve", { kind: "done" }, true)],
  ]);
  expect(compensated.status).toBe("compensated");
  expect([replay(order, waiting), replay(order, compensated)]).toEqual([
    { verdict: "same" },
    { verdict: "same" },
  ]);
});

test("a command that is only sent again leaves a line too, so that the history has no gap", () => {
  const again = saga("order", options)
    .send("reserve", Reserve, (c) => ({ id: c.input.id }), { retry: { maxAttempts: 3 } })
    .undo(Release, (c) => ({ id: c.input.id })).definition;
  const saved = runSaga(again, { id: "o1" }, [
    [31_000, { kind: "tick" }],
    [33_000, { kind: "tick" }],
    [33_100, replyInput("reserve", { kind: "done", result: { r: "r1" } })],
  ]);
  expect(saved.turns.map(({ lines }) => lines[0]?.event)).toEqual([
    "step_executed",
    "failed",
    "step_executed",
    "step_executed",
  ]);
  expect(replay(again, saved)).toEqual({ verdict: "same" });
});

test("F8: a step that was added in front diverges, with the transition and the step", () => {
  const changed = saga("order", options)
    .run("check", () => 1)
    .noUndo("it only reads")
    .send("reserve", Reserve, (c) => ({ id: c.input.id }))
    .undo(Release, (c) => ({ id: c.input.id }))
    .run("charge", () => 1)
    .undo(() => undefined)
    .waitFor("paid", Paid, { timeout: "1h" }).definition;
  expect(replay(changed, waiting)).toMatchObject({
    verdict: "diverges",
    version: 1,
    step: "reserve",
    why: "then: step_executed reserve pending → in_progress; now: step_executed check pending → in_progress",
  });
});

test("F8: a step that is waited for and is gone leaves the instance stuck", () => {
  expect(replay(charged().definition, waiting)).toEqual({
    verdict: "stuck",
    step: "paid",
    why: 'the definition has no step "paid"',
  });
});

test("F8: an undo that was taken away leaves an instance that is being undone stuck", () => {
  const undoing = runSaga(order, { id: "o1" }, [
    [40, replyInput("reserve", { kind: "done", result: { r: "r1" } })],
    [100, workInput("charge", { kind: "refused", error: "no money" })],
  ]);
  const changed = saga("order", options)
    .send("reserve", Reserve, (c) => ({ id: c.input.id }))
    .noUndo("never mind")
    .run("charge", () => 1)
    .undo(() => undefined)
    .waitFor("paid", Paid, { timeout: "1h" }).definition;
  expect(replay(changed, undoing)).toMatchObject({ verdict: "stuck", step: "reserve" });
});

test("F8: a step that waits for a reply and has become a function is stuck", () => {
  const sent = runSaga(order, { id: "o1" }, []);
  const changed = saga("order", options)
    .run("reserve", () => ({ r: "r" }))
    .undo(() => undefined)
    .run("charge", () => 1)
    .undo(() => undefined)
    .waitFor("paid", Paid, { timeout: "1h" }).definition;
  expect(replay(changed, sent)).toMatchObject({ verdict: "stuck", step: "reserve" });
});

test("F8: a version that is not registered is stuck", () => {
  expect(replay(undefined, waiting)).toEqual({
    verdict: "stuck",
    step: null,
    why: "this version of the saga is not registered",
  });
});

test("F8: fewer tries than were made diverge where the difference shows", () => {
  const changed = begun()
    .run("charge", () => 1, { retry: { maxAttempts: 1 } })
    .undo(() => undefined)
    .waitFor("paid", Paid, { timeout: "1h" }).definition;
  expect(replay(changed, waiting)).toMatchObject({ verdict: "diverges", version: 3, step: "charge" });
});

test("F8: a choice that would be made otherwise diverges", () => {
  const choosing = (large: boolean) =>
    saga("order", options)
      .when(
        "large",
        () => large,
        (s) => s.run("ask", () => 1).noUndo("it only reads"),
      )
      .run("charge", () => 1)
      .undo(() => undefined).definition;
  const recorded = runSaga(choosing(true), { id: "o1" }, []);
  expect(replay(choosing(true), recorded)).toEqual({ verdict: "same" });
  expect(replay(choosing(false), recorded)).toMatchObject({ verdict: "diverges", version: 1, step: "ask" });
});

test("a choice without a step of its own shows in the state", () => {
  const charging = saga("order", options)
    .run("charge", () => 1)
    .undo(() => undefined).definition;
  // The builder does not allow such a choice any more, but stored histories contain it.
  const choosing = (way: "a" | "b"): SagaDefinition => ({
    ...charging,
    nodes: [{ kind: "branch", name: "which", choose: () => way, ways: { a: [], b: [] } }, ...charging.nodes],
  });
  const recorded = runSaga(choosing("a"), { id: "o1" }, []);
  expect(replay(choosing("b"), recorded)).toMatchObject({
    verdict: "diverges",
    step: null,
    why: 'choices was {"which":"a"}; now: {"which":"b"}',
  });
});

test("without its whole history an instance is judged by its next move", () => {
  const cut = (saved: RecordedSaga): RecordedSaga => ({ ...saved, turns: saved.turns.slice(1) });
  expect(replay(order, cut(waiting))).toEqual({ verdict: "same" });
  const changed = saga("order", options)
    .run("check", () => 1)
    .noUndo("it only reads")
    .send("reserve", Reserve, (c) => ({ id: c.input.id }))
    .undo(Release, (c) => ({ id: c.input.id }))
    .run("charge", () => 1)
    .undo(() => undefined)
    .waitFor("paid", Paid, { timeout: "1h" }).definition;
  expect(replay(changed, cut(waiting))).toMatchObject({
    verdict: "diverges",
    step: "check",
    why: "nothing was to happen then; now: step_executed check pending → in_progress",
  });
});

test("F5: every change of status in these histories is one of the documented moves", () => {
  const allowed = new Set(statusMoves.map(({ from, to }) => `${from} → ${to}`));
  const seen = waiting.turns
    .flatMap(({ lines }) => lines)
    .filter(({ event: kind }) => kind === "state_changed")
    .map(({ from, to }) => `${from} → ${to}`);
  expect(seen).toEqual(["started → running"]);
  expect(seen.filter((move) => !allowed.has(move))).toEqual([]);
  expect(statusMoves.filter(({ from, to }) => from === to)).toEqual([]);
});

test("F8: an open instance whose step lost its undo is stuck; one that ended diverges, unless its records lack the kind", () => {
  const free = begun()
    .run("charge", () => 1, { retry: { maxAttempts: 2 } })
    .noUndo("it is free")
    .waitFor("paid", Paid, { timeout: "1h" }).definition;
  const why = "it could not be undone: the definition has no undo for it";
  expect(replay(free, waiting)).toEqual({ verdict: "stuck", step: "charge", why });
  expect(replay(free, { ...waiting, turns: [] })).toEqual({ verdict: "stuck", step: "charge", why });
  const ended: RecordedSaga = { ...waiting, status: "completed" };
  expect(replay(free, ended)).toMatchObject({ verdict: "diverges", step: "charge" });
  const records = Object.entries(waiting.state.records).map(([stepPath, record]) => [
    stepPath,
    { ...record, kind: undefined, undoable: undefined },
  ]);
  const state = { ...waiting.state, records: Object.fromEntries(records) as typeof waiting.state.records };
  expect(replay(free, { ...waiting, state })).toEqual({ verdict: "same" });
});
