import { expect, test } from "vitest";
import { defineStatement, type Queryable } from "../storage/index.ts";
import { TransitionWriter } from "./transition-writer.ts";

interface Call {
  readonly ids: readonly string[];
  readonly answer: (saved?: readonly string[]) => void;
  readonly fail: (error: Error) => void;
}

function setup() {
  const calls: Call[] = [];
  let arrived: () => void = () => undefined;
  const database: Queryable = {
    run: (_, [text] = []) =>
      new Promise((resolve, reject) => {
        const ids = (JSON.parse(String(text)) as { readonly id: string }[]).map(({ id }) => id);
        const answer = (saved: readonly string[] = ids): void =>
          resolve({
            rows: saved.map((id) => ({ id })) as never[],
            rowCount: saved.length,
            command: "SELECT",
          });
        calls.push({ ids, answer, fail: reject });
        arrived();
      }),
  };
  const writer = new TransitionWriter(database, defineStatement("save", "select 1"));
  const save = (id: string, size = 0): Promise<boolean> =>
    writer.save({ id, text: JSON.stringify({ id, state: "x".repeat(size) }) });
  const call = async (nr: number): Promise<Call> => {
    while (calls[nr] === undefined) await new Promise<void>((resolve) => (arrived = resolve));
    return calls[nr];
  };
  return { save, call, calls };
}

test("transitions that are ready in the same moment are one statement", async () => {
  const { save, call, calls } = setup();
  const saved = Promise.all([save("a"), save("b"), save("c")]);
  (await call(0)).answer();
  expect(await saved).toEqual([true, true, true]);
  expect(calls.map(({ ids }) => ids)).toEqual([["a", "b", "c"]]);
});

test("transitions that become ready during a write form the next batch", async () => {
  const { save, call } = setup();
  const first = save("a");
  const { ids, answer } = await call(0);
  const others = Promise.all([save("b"), save("c")]);
  answer();
  const next = await call(1);
  next.answer();
  expect([ids, next.ids]).toEqual([["a"], ["b", "c"]]);
  expect([await first, await others]).toEqual([true, [true, true]]);
});

test("only a transition that was not saved resolves with false", async () => {
  const { save, call } = setup();
  const saved = Promise.all([save("a"), save("b"), save("c")]);
  (await call(0)).answer(["a", "c"]);
  expect(await saved).toEqual([true, false, true]);
});

test("two transitions of one instance are never in one statement, and keep their order", async () => {
  const { save, call } = setup();
  const told: string[] = [];
  const all = ["a", "b", "a"].map((id, nr) => save(id).then(() => told.push(`${id}${nr}`)));
  const first = await call(0);
  first.answer();
  const second = await call(1);
  second.answer();
  await Promise.all(all);
  expect([first.ids, second.ids]).toEqual([["a", "b"], ["a"]]);
  expect(told).toEqual(["a0", "b1", "a2"]);
});

test("when a batch fails, each transition is written alone, and only the faulty one fails", async () => {
  const { save, call, calls } = setup();
  const saved = Promise.allSettled([save("a"), save("bad"), save("c")]);
  (await call(0)).fail(new Error("invalid text"));
  await call(3);
  for (const { ids, answer, fail } of calls.slice(1)) {
    if (ids[0] === "bad") fail(new Error("invalid text"));
    else answer();
  }
  expect((await saved).map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
  expect(calls.slice(1).map(({ ids }) => ids)).toEqual([["a"], ["bad"], ["c"]]);
});

test("after a failure the next ones are written as before", async () => {
  const { save, call } = setup();
  const failing = save("a");
  (await call(0)).fail(new Error("the connection was lost"));
  await expect(failing).rejects.toThrow("the connection was lost");
  const next = save("a");
  (await call(1)).answer();
  expect(await next).toBe(true);
});

test("large states are spread over several statements", async () => {
  const { save, call } = setup();
  const saved = Promise.all([save("a", 600_000), save("b", 600_000), save("c", 10)]);
  const first = await call(0);
  first.answer();
  const second = await call(1);
  second.answer();
  await saved;
  expect([first.ids, second.ids]).toEqual([["a", "c"], ["b"]]);
});
