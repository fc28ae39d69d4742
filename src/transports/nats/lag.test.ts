import { expect, test } from "vitest";
import { findPositions, type Position } from "./lag.ts";
import { groupNames } from "./topology.ts";

const names = groupNames("dp", "shop", "mail");
const consumer = (name: string, waiting = 0): Position => ({
  name,
  num_pending: waiting,
  num_ack_pending: 0,
  ack_floor: { stream_seq: 0 },
  config: { filter_subject: "dp.msg.t.0" },
});
const partition = (number: number, term: number, waiting = 0) =>
  consumer(names.partitionConsumer("t", number, term), waiting);
const shared = consumer(names.sharedConsumer("t"), 7);

test("each partition counts once, by the consumer of its last term", () => {
  const found = [partition(0, 2, 5), partition(0, 1, 9), partition(1, 1, 3), shared];
  const waiting = findPositions(found, true, 2)?.map((position) => position.num_pending);
  expect(waiting?.toSorted()).toEqual([3, 5]);
});

test("a group without order has one consumer", () => {
  expect(findPositions([partition(0, 1), shared], false, 2)).toEqual([shared]);
});

test("if a consumer is missing, the lag is unknown", () => {
  expect(findPositions([partition(0, 1)], true, 2)).toBeUndefined();
  expect(findPositions([shared], true, 2)).toBeUndefined();
  expect(findPositions([partition(0, 1), partition(1, 1)], false, 2)).toBeUndefined();
  expect(findPositions([], true, 2)).toBeUndefined();
});
