import { expect, test } from "vitest";
import { caseTitle } from "../../test/support/case-title.ts";
import { exerciseTransport, type SkippedCase } from "./exercise-transport.ts";
import { MemoryTransport } from "./memory-transport.ts";

const { capabilities } = new MemoryTransport();

async function make() {
  const transport = new MemoryTransport();
  return { transport, another: async () => transport, close: () => transport.close() };
}

const skipped = exerciseTransport({ test: (name, run) => test(caseTitle(name), run) }, make, {
  capabilities,
});

test("B1: of the broker in memory everything is asked but the death of a process it lives in", () => {
  expect(skipped).toEqual([
    { name: "a message that no queue takes is rejected", reason: "it does not claim rejectsUnrouted" },
    {
      name: "what a dead member held goes to the others, in order, and nothing is lost",
      reason: "no process of it can die alone",
    },
  ]);
});

function skippedBy(options: Partial<Parameters<typeof exerciseTransport>[2]>): readonly SkippedCase[] {
  return exerciseTransport({ test: () => undefined }, make, { capabilities, ...options });
}

test("B1: what a transport does not claim is not asked of it, and the reason is told", () => {
  const found = skippedBy({ capabilities: { ...capabilities, keepsUnrouted: false } });
  expect(found).toContainEqual({
    name: "what nobody has claimed waits for the first group, and for no other",
    reason: "it does not claim keepsUnrouted",
  });
});

test("B1: a case may be left out for a reason; one that does not exist may not", () => {
  const name = "a payload of 512 kB arrives whole";
  expect(skippedBy({ skip: { [name]: "the broker takes 256 kB" } })).toContainEqual({
    name,
    reason: "the broker takes 256 kB",
  });
  expect(() => skippedBy({ skip: { "a payload of 512 KB": "typing error" } })).toThrow("There is no case");
});
