import { expect, test } from "vitest";
import {
  groupNames,
  messageSubject,
  partitionFor,
  readConsumerName,
  streamNames,
  toToken,
} from "./topology.ts";

test("B4, B6: names consist of the prefix, the topic, the service and the group", () => {
  const names = groupNames("dp", "billing", "orders");
  expect(streamNames("dp").messages).toBe("dp_messages");
  expect(messageSubject("dp", "events.order.created", 3)).toBe("dp.msg.events.order.created.3");
  expect(names.retry("events.order.created")).toBe("dp.retry.billing.orders.events.order.created");
  expect(names.dead).toBe("dp.dlq.billing.orders");
  expect(names.partitionConsumer("a.b", 3, 7)).toMatch(/^billing-orders-a_b-[0-9a-f]{12}-p3-e7$/);
});

test.each([
  ["a..b", "dp.msg.a.=.b.0"],
  [".a", "dp.msg.=.a.0"],
  ["a.", "dp.msg.a.=.0"],
])("B4: the empty token in topic %s becomes a valid subject token", (topic, subject) => {
  expect(messageSubject("dp", topic, 0)).toBe(subject);
});

test("B4: every group name becomes a valid and distinct subject token", () => {
  const groups = ["a.b", "a b", "a*", "a>", "a/b", "ä", "a_b", "a-b", "a=b", "", "😀"];
  const tokens = groups.map(toToken);
  expect(new Set(tokens).size).toBe(groups.length);
  for (const word of tokens) expect(word).toMatch(/^[A-Za-z0-9_=-]+$/);
});

test("B4: consumers of groups with similar names have different names, short enough for a file name", () => {
  const long = "x".repeat(249);
  const names = [
    groupNames("dp", "a", "b.c").sharedConsumer("t"),
    groupNames("dp", "a", "b c").sharedConsumer("t"),
    groupNames("dp", "a.b", "c").sharedConsumer("t"),
    groupNames("dp", long, long).partitionConsumer(`${long}1`, 255, 1_000_000),
    groupNames("dp", long, long).partitionConsumer(`${long}2`, 255, 1_000_000),
  ];
  expect(new Set(names).size).toBe(names.length);
  for (const name of names) {
    expect(name.length).toBeLessThan(200);
    expect(name).toMatch(/^[A-Za-z0-9_-]+$/);
  }
});

test("B4: a consumer name contains its group, partition and term; other names are ignored", () => {
  const names = groupNames("dp", "billing", "orders");
  const read = readConsumerName(names.partitionConsumer("t", 3, 12));
  expect(read).toMatchObject({ partition: "3", epoch: 12 });
  expect(readConsumerName(names.sharedConsumer("t"))).toEqual({ ...read, partition: "all", epoch: 0 });
  expect(readConsumerName("their-consumer")).toBeUndefined();
});

test("B4: a key always maps to one partition; messages without a key are spread", () => {
  const keyed = Array.from({ length: 50 }, (_, n) => partitionFor({ key: "k", id: String(n) }, 8));
  expect(new Set(keyed).size).toBe(1);
  const unkeyed = Array.from({ length: 200 }, (_, n) => partitionFor({ key: null, id: String(n) }, 8));
  expect(new Set(unkeyed)).toEqual(new Set([0, 1, 2, 3, 4, 5, 6, 7]));
});
