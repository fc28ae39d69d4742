import { deepStrictEqual, ok, strictEqual } from "node:assert/strict";
import { randomBytes, systemClock } from "../runtime/index.ts";
import type { PublishOutcome } from "../transport/index.ts";
import { ackAll, expectedOrder, type ExerciseCases } from "./exercise-harness.ts";

/** The outcomes that an aborted publish may return. Neither is a failure of the message itself. */
const abortedOutcomes = new Set<PublishOutcome["kind"]>(["unknown", "unreachable"]);
const MAX_IMMEDIATE_MS = 2_000;

/** Cases about outcomes of publishing, and about messages arriving unchanged. */
export const publishingCases: ExerciseCases = {
  "each message of a batch gets its own outcome, in the order of the batch": {
    run: async (harness) => {
      const member = await harness.addMember({ receive: ackAll });
      const outcomes = await harness.publish(...expectedOrder("m", 7).map((id) => harness.message({ id })));
      deepStrictEqual(outcomes, Array(7).fill({ kind: "published" }));
      deepStrictEqual(await harness.publish(), []);
      await member.waitForDeliveries(7);
      deepStrictEqual(member.names.toSorted(), expectedOrder("m", 7));
    },
  },
  "a message keeps every field, header and character": {
    run: async (harness) => {
      const member = await harness.addMember({ receive: ackAll });
      const text = JSON.stringify({ text: 'Straße "7" \\ 😀 \u0001\u2028 ' + "語".repeat(200), big: 1e21 });
      const full = harness.message({
        kind: "command",
        schemaVersion: 7,
        key: "Schlüssel ' \" \\ {1,2} 😀",
        data: text,
        headers: { "x-tenant": "acme", "x-note": "ä, \"b\"; c='d'\\", empty: "" },
        causationId: "cause",
        sagaId: "saga",
        aggregateType: "order",
        aggregateId: "o-1",
        target: "billing",
        priority: 7,
        expiresAt: "2126-01-02T03:04:05.123456Z",
      });
      await harness.publish(full);
      const [delivery] = await member.waitForDeliveries(1);
      deepStrictEqual(delivery?.message, full);
      strictEqual(delivery?.attempt, 1);
    },
  },
  "a payload of 512 kB arrives unchanged": {
    run: async (harness) => {
      const member = await harness.addMember({ receive: ackAll });
      const data = JSON.stringify({ text: "0123456789abcdef".repeat(32_760) });
      await harness.publish(harness.message({ data }));
      const [delivery] = await member.waitForDeliveries(1);
      ok(delivery?.message.data === data, "the payload was changed");
    },
  },
  "publishing to a topic without readers succeeds": {
    unless: ["rejectsUnrouted"],
    run: async (harness) => {
      deepStrictEqual(await harness.publish(harness.message({ topic: `${harness.topic}.unread` })), [
        { kind: "published" },
      ]);
    },
  },
  "a message that no queue accepts is rejected": {
    needs: ["rejectsUnrouted"],
    run: async (harness) => {
      const [outcome] = await harness.publish(harness.message({ topic: `${harness.topic}.unread` }));
      strictEqual(outcome?.kind, "rejected");
    },
  },
  "a message that is too large is refused alone; the others of the batch are published": {
    needs: ["maxBytes"],
    run: async (harness) => {
      const member = await harness.addMember({ receive: ackAll });
      const { maxBytes } = harness.transport.capabilities;
      const large = harness.message({ id: "large", data: JSON.stringify(randomText(2 * maxBytes)) });
      const outcomes = await harness.publish(
        harness.message({ id: "a" }),
        large,
        harness.message({ id: "b" }),
      );
      deepStrictEqual(
        outcomes.map(({ kind }) => kind),
        ["published", "refused", "published"],
      );
      await member.waitForDeliveries(2);
      deepStrictEqual(member.names.toSorted(), ["a", "b"]);
    },
  },
  "a payload of maxBytes arrives unchanged": {
    needs: ["maxBytes"],
    run: async (harness) => {
      const member = await harness.addMember({ receive: ackAll });
      const data = JSON.stringify(randomText(harness.transport.capabilities.maxBytes - 2));
      deepStrictEqual(await harness.publish(harness.message({ data })), [{ kind: "published" }]);
      ok((await member.waitForDeliveries(1))[0]?.message.data === data, "the payload was changed");
    },
  },
  "64 unusual and long headers arrive unchanged": {
    run: async (harness) => {
      const member = await harness.addMember({ receive: ackAll });
      const headers = {
        ends: "  two spaces  ",
        tab: "\ta\t",
        quotes: `"double" 'single' \`back\` \\ %41 %`,
        foreign: "Grüße, 東京, 😀, \u00a0",
        colon: "a: b; c=d, {e}",
        number: "0012",
        empty: "",
        long: "ü".repeat(4_096),
        ...Object.fromEntries(expectedOrder("x-n", 56).map((name) => [name, name])),
      };
      deepStrictEqual(await harness.publish(harness.message({ headers })), [{ kind: "published" }]);
      deepStrictEqual((await member.waitForDeliveries(1))[0]?.message.headers, headers);
    },
  },
  "headers of half a megabyte arrive unchanged or are refused alone": {
    run: async (harness) => {
      const member = await harness.addMember({ receive: ackAll });
      const headers = Object.fromEntries(expectedOrder("x-n", 64).map((name) => [name, "x".repeat(8_192)]));
      const batch = [
        harness.message({ id: "a" }),
        harness.message({ id: "heavy", headers }),
        harness.message({ id: "b" }),
      ];
      const kinds = (await harness.publish(...batch)).map(({ kind }) => kind);
      ok(kinds[1] === "published" || kinds[1] === "refused", `it is ${kinds[1]}`);
      deepStrictEqual([kinds[0], kinds[2]], ["published", "published"]);
      const wanted = kinds[1] === "published" ? ["a", "b", "heavy"] : ["a", "b"];
      const arrived = await member.waitForDeliveries(wanted.length);
      deepStrictEqual(member.names.toSorted(), wanted);
      const heavy = arrived.find((delivery) => harness.readName(delivery) === "heavy");
      if (heavy !== undefined) deepStrictEqual(heavy.message.headers, headers);
    },
  },
  "an aborted publish returns at once, and messages it reports as published arrive": {
    run: async (harness) => {
      const member = await harness.addMember({ receive: ackAll });
      const sender = new AbortController();
      const batch = expectedOrder("m", 20).map((id) => harness.message({ id, key: id }));
      const beganMs = systemClock.monotonicMs();
      const publishing = harness.transport.publish(batch, { signal: sender.signal });
      sender.abort();
      const outcomes = await publishing;
      ok(systemClock.monotonicMs() - beganMs < MAX_IMMEDIATE_MS, "publishing continued after it was aborted");
      strictEqual(outcomes.length, 20);
      const published = expectedOrder("m", 20).filter((_, n) => outcomes[n]?.kind === "published");
      ok(outcomes.every(({ kind }) => kind === "published" || abortedOutcomes.has(kind)));
      await member.waitUntil(() => published.every((name) => member.names.includes(name)));
    },
  },
  "a publish without a broker returns when it is aborted, and no attempt is counted": {
    needs: ["abandon"],
    run: async (harness) => {
      const isolated = await harness.openAnother();
      await isolated.open();
      harness.abandon(isolated);
      const sender = new AbortController();
      const publishing = isolated.publish([harness.message(), harness.message()], { signal: sender.signal });
      sender.abort();
      const beganMs = systemClock.monotonicMs();
      const outcomes = await publishing;
      ok(systemClock.monotonicMs() - beganMs < MAX_IMMEDIATE_MS, "publishing continued after it was aborted");
      deepStrictEqual(
        outcomes.map(({ kind }) => abortedOutcomes.has(kind)),
        [true, true],
      );
    },
  },
  "publishing after close is unreachable and does not hang": {
    run: async (harness) => {
      await harness.publish(harness.message());
      await harness.transport.close();
      const beganMs = systemClock.monotonicMs();
      const [outcome] = await harness.publish(harness.message());
      strictEqual(outcome?.kind, "unreachable");
      ok(
        systemClock.monotonicMs() - beganMs < MAX_IMMEDIATE_MS,
        "publishing waited although the transport is closed",
      );
    },
  },
};

/** Returns a string of `bytes` bytes that cannot be compressed much. */
function randomText(bytes: number): string {
  return Buffer.from(randomBytes(Math.ceil((bytes * 3) / 4) + 3))
    .toString("base64")
    .slice(0, bytes);
}
