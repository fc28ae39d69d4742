import { deepStrictEqual, ok, strictEqual } from "node:assert/strict";
import { randomBytes, systemClock } from "../runtime/index.ts";
import type { PublishOutcome } from "../transport/index.ts";
import { ackAll, expectedOrder, type ExerciseCases } from "./exercise-case.ts";

/** An answer of a sender that was cut short: neither is the message's own failure. */
const abortedOutcomes = new Set<PublishOutcome["kind"]>(["unknown", "unreachable"]);
const MAX_IMMEDIATE_MS = 2_000;

/** What a publisher learns, and how whole things arrive. */
export const publishingCases: ExerciseCases = {
  "each message of a batch gets an outcome of its own, in the order given": {
    run: async (stage) => {
      const member = await stage.addMember({ receive: ackAll });
      const outcomes = await stage.publish(...expectedOrder("m", 7).map((id) => stage.message({ id })));
      deepStrictEqual(outcomes, Array(7).fill({ kind: "published" }));
      deepStrictEqual(await stage.publish(), []);
      await member.waitForDeliveries(7);
      deepStrictEqual(member.names.toSorted(), expectedOrder("m", 7));
    },
  },
  "a message keeps every field, header and letter": {
    run: async (stage) => {
      const member = await stage.addMember({ receive: ackAll });
      const text = JSON.stringify({ text: 'Straße "7" \\ 😀 \u0001\u2028 ' + "語".repeat(200), big: 1e21 });
      const full = stage.message({
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
      await stage.publish(full);
      const [delivery] = await member.waitForDeliveries(1);
      deepStrictEqual(delivery?.message, full);
      strictEqual(delivery?.attempt, 1);
    },
  },
  "a payload of 512 kB arrives whole": {
    run: async (stage) => {
      const member = await stage.addMember({ receive: ackAll });
      const data = JSON.stringify({ text: "0123456789abcdef".repeat(32_760) });
      await stage.publish(stage.message({ data }));
      const [delivery] = await member.waitForDeliveries(1);
      ok(delivery?.message.data === data, "the payload was changed");
    },
  },
  "publishing to a topic that nobody reads is no failure": {
    unless: ["rejectsUnrouted"],
    run: async (stage) => {
      deepStrictEqual(await stage.publish(stage.message({ topic: `${stage.topic}.unread` })), [
        { kind: "published" },
      ]);
    },
  },
  "a message that no queue takes is rejected": {
    needs: ["rejectsUnrouted"],
    run: async (stage) => {
      const [outcome] = await stage.publish(stage.message({ topic: `${stage.topic}.unread` }));
      strictEqual(outcome?.kind, "rejected");
    },
  },
  "a message that is too large is refused alone; those before and behind it are published": {
    needs: ["maxBytes"],
    run: async (stage) => {
      const member = await stage.addMember({ receive: ackAll });
      const { maxBytes } = stage.transport.capabilities;
      const large = stage.message({ id: "large", data: JSON.stringify(randomText(2 * maxBytes)) });
      const outcomes = await stage.publish(stage.message({ id: "a" }), large, stage.message({ id: "b" }));
      deepStrictEqual(
        outcomes.map(({ kind }) => kind),
        ["published", "refused", "published"],
      );
      await member.waitForDeliveries(2);
      deepStrictEqual(member.names.toSorted(), ["a", "b"]);
    },
  },
  "a payload as large as is claimed arrives whole": {
    needs: ["maxBytes"],
    run: async (stage) => {
      const member = await stage.addMember({ receive: ackAll });
      const data = JSON.stringify(randomText(stage.transport.capabilities.maxBytes - 2));
      deepStrictEqual(await stage.publish(stage.message({ data })), [{ kind: "published" }]);
      ok((await member.waitForDeliveries(1))[0]?.message.data === data, "the payload was changed");
    },
  },
  "unusual headers arrive as they were, 64 of them, and long ones": {
    run: async (stage) => {
      const member = await stage.addMember({ receive: ackAll });
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
      deepStrictEqual(await stage.publish(stage.message({ headers })), [{ kind: "published" }]);
      deepStrictEqual((await member.waitForDeliveries(1))[0]?.message.headers, headers);
    },
  },
  "headers of half a megabyte arrive whole or are refused alone": {
    run: async (stage) => {
      const member = await stage.addMember({ receive: ackAll });
      const headers = Object.fromEntries(expectedOrder("x-n", 64).map((name) => [name, "x".repeat(8_192)]));
      const batch = [
        stage.message({ id: "a" }),
        stage.message({ id: "heavy", headers }),
        stage.message({ id: "b" }),
      ];
      const kinds = (await stage.publish(...batch)).map(({ kind }) => kind);
      ok(kinds[1] === "published" || kinds[1] === "refused", `it is ${kinds[1]}`);
      deepStrictEqual([kinds[0], kinds[2]], ["published", "published"]);
      const wanted = kinds[1] === "published" ? ["a", "b", "heavy"] : ["a", "b"];
      const arrived = await member.waitForDeliveries(wanted.length);
      deepStrictEqual(member.names.toSorted(), wanted);
      const heavy = arrived.find((delivery) => stage.readName(delivery) === "heavy");
      if (heavy !== undefined) deepStrictEqual(heavy.message.headers, headers);
    },
  },
  "a publish whose sender has given up ends at once, and what it calls published arrives": {
    run: async (stage) => {
      const member = await stage.addMember({ receive: ackAll });
      const sender = new AbortController();
      const batch = expectedOrder("m", 20).map((id) => stage.message({ id, key: id }));
      const beganMs = systemClock.monotonicMs();
      const publishing = stage.transport.publish(batch, { signal: sender.signal });
      sender.abort();
      const outcomes = await publishing;
      ok(systemClock.monotonicMs() - beganMs < MAX_IMMEDIATE_MS, "it went on after its sender had given up");
      strictEqual(outcomes.length, 20);
      const published = expectedOrder("m", 20).filter((_, n) => outcomes[n]?.kind === "published");
      ok(outcomes.every(({ kind }) => kind === "published" || abortedOutcomes.has(kind)));
      await member.waitUntil(() => published.every((name) => member.names.includes(name)));
    },
  },
  "cut off from the broker, a publish ends when its sender gives up, and charges nothing": {
    needs: ["abandon"],
    run: async (stage) => {
      const lonely = await stage.openAnother();
      await lonely.open();
      stage.abandon(lonely);
      const sender = new AbortController();
      const publishing = lonely.publish([stage.message(), stage.message()], { signal: sender.signal });
      sender.abort();
      const beganMs = systemClock.monotonicMs();
      const outcomes = await publishing;
      ok(systemClock.monotonicMs() - beganMs < MAX_IMMEDIATE_MS, "it went on after its sender had given up");
      deepStrictEqual(
        outcomes.map(({ kind }) => abortedOutcomes.has(kind)),
        [true, true],
      );
    },
  },
  "after closing, a publish is unreachable and does not hang": {
    run: async (stage) => {
      await stage.publish(stage.message());
      await stage.transport.close();
      const beganMs = systemClock.monotonicMs();
      const [outcome] = await stage.publish(stage.message());
      strictEqual(outcome?.kind, "unreachable");
      ok(systemClock.monotonicMs() - beganMs < MAX_IMMEDIATE_MS, "it waited for a transport that is closed");
    },
  },
};

/** So many bytes of a text that no compression makes small. */
function randomText(bytes: number): string {
  return Buffer.from(randomBytes(Math.ceil((bytes * 3) / 4) + 3))
    .toString("base64")
    .slice(0, bytes);
}
