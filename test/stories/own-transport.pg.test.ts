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
    "it does not claim delaysRedelivery",
    "it does not claim keepsUnrouted",
    "it does not claim ordersByKey",
    "it does not claim rejectsUnrouted",
    "it does not claim replays",
    "it has no dead letters of its own",
    "no process of it can die alone",
    "nobody else can put anything there",
  ]);
});
