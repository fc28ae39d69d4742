import { expect, test } from "vitest";
import { routes } from "../../src/dashboard/routes.ts";
import { addressOf, paths } from "./api.ts";

test("the pages call exactly the routes that the server has", () => {
  const served = Object.entries(routes).map(([name, { method, path }]) => [name, `${method} ${path}`]);
  expect(paths).toEqual(Object.fromEntries(served));
});

test("an id is one segment of the path, whatever is in it", () => {
  expect(addressOf("messages.show", { params: { id: "../a b/?x=<i>" } })).toBe(
    "api/messages/..%2Fa%20b%2F%3Fx%3D%3Ci%3E",
  );
});

test("empty parameters are left out of an address", () => {
  expect(addressOf("messages.list", { query: { type: "order.placed", key: "", after: undefined } })).toBe(
    "api/messages?type=order.placed",
  );
});
