import { expect, test } from "vitest";
import { Turns } from "./destinations.ts";

function open(): { readonly done: Promise<void>; readonly end: () => void } {
  let end = (): void => undefined;
  const done = new Promise<void>((resolve) => (end = resolve));
  return { done, end };
}

test("a task starts when the previous one has ended or failed", async () => {
  const turns = new Turns({ patienceMs: 60_000 });
  const first = open();
  const begun: string[] = [];
  const one = turns.take(async () => {
    begun.push("one");
    await first.done;
    throw new Error("no");
  });
  const two = turns.take(async () => void begun.push("two"));
  const three = turns.take(async () => begun.push("three"));
  await new Promise((resolve) => setImmediate(resolve));
  expect(begun).toEqual(["one"]);
  first.end();
  await expect(one).rejects.toThrow("no");
  expect(await two).toEqual({ result: undefined, alone: true });
  expect(await three).toEqual({ result: 3, alone: true });
  expect(begun).toEqual(["one", "two", "three"]);
});

test("after the patience both tasks run, and neither counts as alone", async () => {
  const turns = new Turns({ patienceMs: 5 });
  const silent = open();
  const one = turns.take(() => silent.done);
  const two = await turns.take(() => Promise.resolve("sent"));
  expect(two).toEqual({ result: "sent", alone: false });
  silent.end();
  expect(await one).toEqual({ result: undefined, alone: false });
  expect((await turns.take(() => Promise.resolve())).alone).toBe(true);
});
