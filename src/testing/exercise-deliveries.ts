import { deepStrictEqual, ok, strictEqual } from "node:assert/strict";
import { sleep, systemClock } from "../runtime/index.ts";
import type { Delivery } from "../transport/index.ts";
import { ackAll, inOrder, ofKey, QUIET_MS, rounds, type ExerciseCases } from "./exercise-case.ts";
import type { ExerciseMember } from "./exercise-stage.ts";

const FAILED = { charged: true, error: "told to fail" };

/** One group: what is published arrives whole, in order and once, and settling means what it says. */
export const deliveryCases: ExerciseCases = {
  "each message of a batch gets an outcome of its own, in the order given": {
    run: async (stage) => {
      const member = await stage.member({ receive: ackAll });
      const outcomes = await stage.publish(...inOrder("m", 7).map((id) => stage.message({ id })));
      deepStrictEqual(outcomes, Array(7).fill({ kind: "published" }));
      deepStrictEqual(await stage.publish(), []);
      await member.got(7);
      deepStrictEqual(member.names.toSorted(), inOrder("m", 7));
    },
  },
  "a message keeps every field, header and letter": {
    run: async (stage) => {
      const member = await stage.member({ receive: ackAll });
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
      const [delivery] = await member.got(1);
      deepStrictEqual(delivery?.message, full);
      strictEqual(delivery?.attempt, 1);
    },
  },
  "a payload of 512 kB arrives whole": {
    run: async (stage) => {
      const member = await stage.member({ receive: ackAll });
      const data = JSON.stringify({ text: "0123456789abcdef".repeat(32_760) });
      await stage.publish(stage.message({ data }));
      const [delivery] = await member.got(1);
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
  "every group gets a copy of its own": {
    run: async (stage) => {
      const members = [await stage.member({ group: "a" }), await stage.member({ group: "b" })];
      await stage.publish(stage.message({ id: "1" }), stage.message({ id: "2" }));
      for (const member of members) {
        for (const delivery of await member.got(2)) await delivery.ack();
        deepStrictEqual(member.names.toSorted(), ["1", "2"]);
      }
    },
  },
  "messages of one key arrive in the order they were published": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const keys = ["a", "b", "c", "d", "e"];
      const member = await stage.member({ prefetch: 4, receive: ackAll });
      for (const round of rounds(stage, keys, 12)) await stage.publish(...round);
      await member.got(60);
      for (const key of keys) deepStrictEqual(ofKey(member.names, key), inOrder(key, 12));
    },
  },
  "the order key is the same for one key, differs between keys, and is missing without one": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const member = await stage.member({ receive: ackAll });
      const keyed = ["a", "a", "b"].map((key, n) => stage.message({ id: String(n), key }));
      await stage.publish(...keyed, stage.message({ id: "3" }));
      await member.got(4);
      const order = new Map(member.received.map((delivery) => [stage.nameOf(delivery), delivery.orderKey]));
      ok(order.get("0") !== null && order.get("0") === order.get("1"));
      ok(order.get("2") !== null && order.get("2") !== order.get("0"));
      strictEqual(order.get("3"), null);
    },
  },
  "competing members share the messages of a group, each to one of them, in order per key": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const all: string[] = [];
      const receive = (delivery: Delivery): unknown => all.push(stage.nameOf(delivery)) && delivery.ack();
      const members: ExerciseMember[] = [];
      for (let n = 0; n < 3; n++) {
        members.push(
          await stage.member({ transport: n === 0 ? stage.transport : await stage.another(), receive }),
        );
      }
      const keys = inOrder("k", 20).map((key) => `${key}-`);
      for (const round of rounds(stage, keys, 6)) await stage.publish(...round);
      const began = systemClock.monotonicMs();
      while (all.length < 120 && systemClock.monotonicMs() - began < 15_000) await sleep(10);
      await sleep(QUIET_MS);
      strictEqual(all.length, 120);
      for (const key of keys) deepStrictEqual(ofKey(all, key), inOrder(key, 6));
    },
  },
  "no more than the prefetch is unsettled at once": {
    run: async (stage) => {
      const member = await stage.member({ prefetch: 3 });
      await stage.publish(...inOrder("m", 8).map((id) => stage.message({ id })));
      await member.got(3);
      await sleep(QUIET_MS);
      strictEqual(member.received.length, 3);
      for (let n = 0; n < 8; n++) await (await member.got(n + 1))[n]?.ack();
      deepStrictEqual(member.names.toSorted(), inOrder("m", 8));
    },
  },
  "a retry comes back after its delay, one attempt older, with its successors behind it": {
    needs: ["ordersByKey", "ordersRetries"],
    run: async (stage) => {
      const member = await stage.member({ prefetch: 1 });
      await stage.publish(...inOrder("a", 3).map((id) => stage.message({ id, key: "a" })));
      await (await member.got(1))[0]?.retry({ ...FAILED, delayMs: 300 });
      const failedAt = systemClock.monotonicMs();
      await stage.publish(stage.message({ id: "b0", key: "b" }));
      await (await member.got(2))[1]?.ack();
      for (let n = 3; n <= 5; n++) await (await member.got(n))[n - 1]?.ack();
      ok(systemClock.monotonicMs() - failedAt >= 290, "it came back too early");
      deepStrictEqual(member.names, ["a0", "b0", "a0", "a1", "a2"]);
      deepStrictEqual(
        member.received.map(({ attempt }) => attempt),
        [1, 1, 2, 1, 1],
      );
    },
  },
  "a retry without a key comes back after its delay, one attempt older, and holds nobody up": {
    needs: ["delaysRedelivery"],
    run: async (stage) => {
      const member = await stage.member({ prefetch: 1 });
      await stage.publish(stage.message({ id: "late" }));
      await (await member.got(1))[0]?.retry({ ...FAILED, delayMs: 600 });
      const failedAt = systemClock.monotonicMs();
      await stage.publish(stage.message({ id: "next" }));
      for (let n = 2; n <= 3; n++) await (await member.got(n))[n - 1]?.ack();
      ok(systemClock.monotonicMs() - failedAt >= 590, "it came back too early");
      deepStrictEqual(member.names, ["late", "next", "late"]);
      strictEqual(member.received[2]?.attempt, 2);
    },
  },
  "a retry that is not charged counts no attempt": {
    run: async (stage) => {
      const member = await stage.member();
      await stage.publish(stage.message());
      await (await member.got(1))[0]?.retry({ charged: false, error: "not its fault", delayMs: 0 });
      const [, again] = await member.got(2);
      strictEqual(again?.attempt, 1);
      await again.ack();
    },
  },
  "when a head is retried and its successors are given back, all come again in order": {
    needs: ["ordersByKey", "ordersRetries"],
    run: async (stage) => {
      const member = await stage.member({ prefetch: 10 });
      await stage.publish(...inOrder("a", 3).map((id) => stage.message({ id, key: "a" })));
      const [head, ...rest] = await member.got(3);
      await Promise.all([
        head?.retry({ ...FAILED, delayMs: 50 }),
        ...rest.map((delivery) => delivery.release()),
      ]);
      for (let n = 4; n <= 6; n++) await (await member.got(n))[n - 1]?.ack();
      deepStrictEqual(member.names, [...inOrder("a", 3), ...inOrder("a", 3)]);
      deepStrictEqual(
        member.received.slice(3).map(({ attempt }) => attempt),
        [2, 1, 1],
      );
    },
  },
  "a released delivery comes back unharmed": {
    run: async (stage) => {
      const member = await stage.member();
      await stage.publish(stage.message({ id: "1" }));
      await (await member.got(1))[0]?.release();
      const [, again] = await member.got(2);
      strictEqual(again?.attempt, 1);
      await again.ack();
    },
  },
  "a delivery is settled once; what is said later changes nothing": {
    run: async (stage) => {
      const member = await stage.member();
      await stage.publish(stage.message({ id: "1" }));
      const [delivery] = await member.got(1);
      await delivery?.ack();
      await delivery?.retry({ ...FAILED, delayMs: 0 });
      await delivery?.release();
      await delivery?.ack();
      await sleep(QUIET_MS);
      deepStrictEqual(member.names, ["1"]);
    },
  },
  "paused, it takes nothing new, and what is handed out may still be settled": {
    run: async (stage) => {
      const member = await stage.member({ prefetch: 1 });
      await stage.publish(stage.message({ id: "1", key: "k" }), stage.message({ id: "2", key: "k" }));
      const [first] = await member.got(1);
      await member.consumption?.pause();
      await first?.ack();
      await sleep(QUIET_MS);
      deepStrictEqual(member.names, ["1"]);
      await member.close();
      const next = await stage.member();
      await (await next.got(1))[0]?.ack();
      deepStrictEqual(next.names, ["2"]);
    },
  },
  "closing gives back what is unsettled, unharmed and in order": {
    run: async (stage) => {
      const member = await stage.member({ prefetch: 10 });
      await stage.publish(...inOrder("a", 3).map((id) => stage.message({ id, key: "a" })));
      await (await member.got(3))[0]?.ack();
      await member.close();
      const next = await stage.member({ receive: ackAll });
      await next.got(2);
      deepStrictEqual(next.names, ["a1", "a2"]);
      deepStrictEqual(
        next.received.map(({ attempt }) => attempt),
        [1, 1],
      );
    },
  },
};
