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

test("B1: of the broker in memory all is asked but what needs a process or a connection of its own", () => {
  expect([...new Set(skipped.map(({ reason }) => reason))].toSorted()).toEqual([
    "it claims replays",
    "it does not claim rejectsUnrouted",
    "it has no connection that could break",
    "no process of it can die alone",
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

test("B1: what a test cannot do to its broker is not asked, nor is a size that would take too long", () => {
  const reasons = (options: Parameters<typeof skippedBy>[0]) =>
    new Set(skippedBy(options).map(({ reason }) => reason));
  expect(reasons({})).toContain("nobody else can put anything there");
  expect(reasons({ capabilities: { ...capabilities, maxBytes: 2 ** 28 } })).toContain(
    "a message of 268435456 bytes is too much to try",
  );
});

test("B1: a hook that is offered and not there fails its case", async () => {
  const failures: unknown[] = [];
  const plain = async () => {
    const transport = new MemoryTransport();
    return { transport, another: async () => transport, close: () => transport.close() };
  };
  const runs: Promise<void>[] = [];
  exerciseTransport(
    {
      test: (name, run) => {
        if (name.startsWith("bytes that are no message come"))
          runs.push(run().catch((error: unknown) => void failures.push(error)));
      },
    },
    plain,
    { capabilities, offers: ["putForeign"] },
  );
  await Promise.all(runs);
  expect(failures).toEqual([expect.objectContaining({ message: expect.stringContaining('"putForeign"') })]);
});

test("B1: a case may be left out for a reason; one that does not exist may not", () => {
  const name = "a payload of 512 kB arrives whole";
  expect(skippedBy({ skip: { [name]: "the broker takes 256 kB" } })).toContainEqual({
    name,
    reason: "the broker takes 256 kB",
  });
  expect(() => skippedBy({ skip: { "a payload of 512 KB": "typing error" } })).toThrow("There is no case");
});
