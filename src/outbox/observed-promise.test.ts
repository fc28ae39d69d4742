import { expect, test } from "vitest";
import { ObservedPromise } from "./transaction-scope.ts";

const failing = (): ObservedPromise<never> =>
  ObservedPromise.reject(new Error("no")) as ObservedPromise<never>;

test("nobody has heard of a promise that was only overheard", async () => {
  const promise = failing();
  const ended = await new Promise((resolve) =>
    promise.onSettled(
      () => resolve("kept"),
      () => resolve("broken"),
    ),
  );
  expect([ended, promise.isHeard]).toEqual(["broken", false]);
});

test.each([
  ["awaited", async (promise: Promise<never>) => promise],
  ["caught", (promise: Promise<never>) => promise.catch(() => Promise.reject(new Error("no")))],
  ["one of many", (promise: Promise<never>) => Promise.all([promise, Promise.resolve()])],
])("a promise that is %s is heard of, and fails as it would", async (_, hear) => {
  const promise = failing();
  await expect(hear(promise)).rejects.toThrow("no");
  expect(promise.isHeard).toBe(true);
});

test("what is made of it is a promise like any other", async () => {
  const promise = new ObservedPromise<number>((resolve) => resolve(1));
  const next = promise.then((n) => n + 1);
  expect(next).not.toBeInstanceOf(ObservedPromise);
  expect(await next).toBe(2);
});
