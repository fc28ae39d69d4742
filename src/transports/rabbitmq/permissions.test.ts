import { expect, test } from "vitest";
import { rabbitPermissions } from "./index.ts";

test("SEC-32: a service that only publishes may declare and write its exchanges, and read nothing", () => {
  expect(
    rabbitPermissions({
      service: "shop",
      publishes: [{ topic: "events.order.placed" }, { topic: "commands.stock.reserve", kind: "command" }],
    }),
  ).toEqual({
    configure: String.raw`^(dp\.command\.stock|dp\.event\.order)$`,
    write: String.raw`^(dp\.command\.stock|dp\.event\.order)$`,
    read: "^$",
  });
});

test("SEC-32: a consuming service may not publish events or access queues of other groups", () => {
  const { configure, write, read } = rabbitPermissions({
    service: "billing",
    consumes: [{ group: "invoices", topics: [{ topic: "events.order.placed" }] }],
    partitions: 2,
  });
  const may = (pattern: string, name: string): boolean => new RegExp(pattern).test(name);
  expect(may(write, "dp.event.order")).toBe(false);
  expect(may(read, "dp.event.order")).toBe(true);
  for (const pattern of [configure, write, read]) {
    expect(may(pattern, "dp.queue.billing.invoices:1")).toBe(true);
    expect(may(pattern, "dp.retry.billing.600ms.20261103")).toBe(true);
    for (const foreign of ["dp.queue.billing.invoices:2", "dp.queue.shop.invoices:0", "amq.default", ""]) {
      expect(may(pattern, foreign)).toBe(false);
    }
  }
  expect(may(read, "dp.dlq.billing.invoices")).toBe(false);
});

test("an unknown key in the request is refused", () => {
  const request = { service: "shop", publish: [] };
  expect(() => rabbitPermissions(request)).toThrow('Did you mean "publishes"?');
});
