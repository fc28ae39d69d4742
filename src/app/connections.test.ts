import { expect, test } from "vitest";
import { connectionsForHandlers } from "./connections.ts";

test("X-01: what the engine holds is not given to handlers", () => {
  expect(connectionsForHandlers(20, 2)).toBe(6);
});

test("X-01: a pool too small for its consumers is refused with the number that would do", () => {
  expect(() => connectionsForHandlers(10, 2)).toThrow(/Set the pool's `max` to 24 or more/);
});

test("a worker without consumers needs none for handlers", () => {
  expect(() => connectionsForHandlers(3, 0)).not.toThrow();
});
