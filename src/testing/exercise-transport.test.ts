import { expect, test } from "vitest";
import { caseTitle } from "../../test/support/broker-suites.ts";
import { exerciseTransport, type SkippedCase } from "./exercise-transport.ts";
import { MemoryTransport } from "./memory-transport.ts";

const { capabilities } = new MemoryTransport();

async function make() {
  const transport = new MemoryTransport();
  return {
    transport,
    another: async () => transport,
    putForeign: async (topic: string, body: Uint8Array) => transport.putForeign(topic, body),
    deadLetters: async () =>
      transport.deadLetters.map(({ message, body, note }) => ({
        body,
        headers: { ...message.headers, ...note },
      })),
    close: () => transport.close(),
  };
}

const skipped = exerciseTransport({ test: (name, run) => test(caseTitle(name), run) }, make, {
  capabilities,
  offers: ["putForeign", "deadLetters"],
});

test("B1: the memory transport skips only cases that need a separate process or connection", () => {
  expect([...new Set(skipped.map(({ reason }) => reason))].toSorted()).toEqual([
    "a process of the transport cannot crash alone",
    "the transport does not support rejectsUnrouted",
    "the transport has no connection that could break",
    "the transport supports replays",
  ]);
});

function skippedBy(options: Partial<Parameters<typeof exerciseTransport>[2]>): readonly SkippedCase[] {
  return exerciseTransport({ test: () => undefined }, make, { capabilities, ...options });
}

test("B1: cases that need an unsupported capability are skipped with a reason", () => {
  const found = skippedBy({ capabilities: { ...capabilities, keepsUnrouted: false } });
  expect(found).toContainEqual({
    name: "messages without a group wait for the first group only",
    reason: "the transport does not support keepsUnrouted",
  });
});

test("B1: cases that need a missing hook or a very large message are skipped", () => {
  const reasons = (options: Parameters<typeof skippedBy>[0]) =>
    new Set(skippedBy(options).map(({ reason }) => reason));
  expect(reasons({})).toContain("other software cannot publish to the transport");
  expect(reasons({ capabilities: { ...capabilities, maxBytes: 2 ** 28 } })).toContain(
    "a message of 268435456 bytes is too large to test",
  );
});

test("B1: a case fails if its offered hook is missing", async () => {
  const failures: unknown[] = [];
  const plain = async () => {
    const transport = new MemoryTransport();
    return { transport, another: async () => transport, close: () => transport.close() };
  };
  const runs: Promise<void>[] = [];
  exerciseTransport(
    {
      test: (name, run) => {
        if (name.startsWith("bytes that are not a message are delivered"))
          runs.push(run().catch((error: unknown) => void failures.push(error)));
      },
    },
    plain,
    { capabilities, offers: ["putForeign"] },
  );
  await Promise.all(runs);
  expect(failures).toEqual([expect.objectContaining({ message: expect.stringContaining('"putForeign"') })]);
});

test("B1: a case can be skipped with a reason; an unknown case cannot", () => {
  const name = "a payload of 512 kB arrives unchanged";
  expect(skippedBy({ skip: { [name]: "the broker takes 256 kB" } })).toContainEqual({
    name,
    reason: "the broker takes 256 kB",
  });
  expect(() => skippedBy({ skip: { "a payload of 512 KB": "typing error" } })).toThrow("There is no case");
});
