import { expect, test } from "vitest";
import { connectionsForHandlers } from "./worker.ts";

test("X-01: what the engine holds is not given to handlers", () => {
  expect(connectionsForHandlers(40, 2)).toBe(26);
});

test("X-01: a pool of the driver's default size serves a few consumers, one handler at a time", () => {
  expect(connectionsForHandlers(10, 1)).toBe(1);
  expect(connectionsForHandlers(10, 4)).toBe(1);
});

test("X-01: a pool too small for its consumers is refused with the number that would do", () => {
  expect(() => connectionsForHandlers(7, 2)).toThrow(/needs at least 8.*Set the pool's `max` to 24 or more/);
});

test("a worker without consumers leaves one for whoever uses the inbox by itself", () => {
  expect(connectionsForHandlers(3, 0)).toBe(1);
});
