import { expect, test } from "vitest";
import { caseTitle } from "../../test/support/case-title.ts";
import { parkingHouse } from "../../test/support/parking.ts";
import { exerciseTransport, MemoryTransport } from "../testing/index.ts";

const { capabilities } = new MemoryTransport();

const skipped = exerciseTransport(
  { test: (name, run) => test(caseTitle(name, "rule 18"), run) },
  () => {
    const broker = new MemoryTransport();
    return parkingHouse(() => Promise.resolve(broker));
  },
  { capabilities },
);

test("B1: of a broker with parking everything is asked that is asked of it alone", () => {
  expect(skipped.map(({ reason }) => reason)).toEqual([
    "it does not claim rejectsUnrouted",
    "no process of it can die alone",
  ]);
});
