import { expect, test } from "vitest";
import { event } from "sagabox";
import { z } from "zod";
import { ManualSaga } from "../../test/support/manual-saga.ts";
import { erased, type Json } from "../message/index.ts";
import { saga } from "./index.ts";

const Moved = event("goods.moved", { schema: z.object({ from: z.string(), to: z.string() }) });
const order = saga("order", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id });
const journey = order
  .waitFor("left", Moved, { by: (d) => d.from, timeout: "1d" })
  .waitFor("came", Moved, { by: (d) => d.to, timeout: "1d" });

/** The instance that is played has the key "o1". */
function heard(played: ManualSaga, id: string, data: Json): string {
  return played.move({ kind: "event", id, type: Moved.name, data });
}

test("an event is only for the step that finds the key of the instance in it", () => {
  const played = new ManualSaga(journey);
  heard(played, "e1", { from: "o1", to: "a" });
  expect(played.step("left")).toBe("completed");
  expect(heard(played, "e2", { from: "o1", to: "b" })).toBe("running");
  expect(played.step("came")).toBe("in_progress");
  expect(heard(played, "e3", { from: "c", to: "o1" })).toBe("completed");
  expect(played.state.records["came"]?.result).toEqual({ from: "c", to: "o1" });
});

test("S-11: what came early is taken up by the step it is for, not by the one that waits first", () => {
  const played = new ManualSaga(journey);
  expect(heard(played, "e1", { from: "c", to: "o1" })).toBe("running");
  expect(played.step("left")).toBe("in_progress");
  expect(heard(played, "e2", { from: "o1", to: "a" })).toBe("completed");
  expect(played.state.early).toEqual([]);
});

test("one event may be for both, yet ends only the one that waits", () => {
  const played = new ManualSaga(journey);
  expect(heard(played, "e1", { from: "o1", to: "o1" })).toBe("running");
  expect(played.step("came")).toBe("in_progress");
});

test("an event that no step finds its key in is of no use", () => {
  const played = new ManualSaga(journey);
  expect(heard(played, "e1", { from: "a", to: "b" })).toBe("no step of it waits for that");
  expect(heard(played, "e2", null)).toBe("no step of it waits for that");
});

test("an event whose key was erased on its way is still for the step that waits", () => {
  const played = new ManualSaga(journey);
  heard(played, "e1", { ...erased });
  expect(played.step("left")).toBe("completed");
  heard(played, "e2", { from: "o1", to: "a", name: { ...erased } });
  expect(played.step("came")).toBe("in_progress");
});
