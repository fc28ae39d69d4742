import { expect, test } from "vitest";
import { ObservedPromise } from "./transaction-scope.ts";

const failing = (): ObservedPromise<never> =>
  ObservedPromise.reject(new Error("no")) as ObservedPromise<never>;

test("onSettled() does not mark a promise as observed", async () => {
  const promise = failing();
  const ended = await new Promise((resolve) =>
    promise.onSettled(
      () => resolve("kept"),
      () => resolve("broken"),
    ),
  );
  expect([ended, promise.isObserved]).toEqual(["broken", false]);
});

test.each([
  ["awaited", async (promise: Promise<never>) => promise],
  ["caught", (promise: Promise<never>) => promise.catch(() => Promise.reject(new Error("no")))],
  ["one of many", (promise: Promise<never>) => Promise.all([promise, Promise.resolve()])],
])("a promise that is %s is observed, and rejects as usual", async (_, observe) => {
  const promise = failing();
  await expect(observe(promise)).rejects.toThrow("no");
  expect(promise.isObserved).toBe(true);
});

test("derived promises are plain promises", async () => {
  const promise = new ObservedPromise<number>((resolve) => resolve(1));
  const next = promise.then((n) => n + 1);
  expect(next).not.toBeInstanceOf(ObservedPromise);
  expect(await next).toBe(2);
});
