// What docs/guides/transports.md says about a transport of one's own, run.
// #region suite
import { exerciseTransport } from "sagabox/testing";
import { expect, test } from "vitest";
import { ListTransport } from "../../examples/guides/own-transport.ts";

async function make() {
  const transport = new ListTransport();
  return { transport, another: async () => transport, close: () => transport.close() };
}

const { capabilities } = new ListTransport();
const skipped = exerciseTransport({ test }, make, { capabilities });
// #endregion suite

test("B1: a transport that claims little is asked little, and each case left out says why", () => {
  expect([...new Set(skipped.map(({ reason }) => reason))].toSorted()).toEqual([
    "a process of the transport cannot crash alone",
    "other software cannot publish to the transport",
    "the transport does not support delaysRedelivery",
    "the transport does not support keepsUnrouted",
    "the transport does not support ordersByKey",
    "the transport does not support rejectsUnrouted",
    "the transport does not support replays",
    "the transport does not support reportsLag",
    "the transport has no dead letters of its own",
  ]);
});
