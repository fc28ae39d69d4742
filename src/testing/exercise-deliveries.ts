import { deepStrictEqual, ok, strictEqual } from "node:assert/strict";
import { sleep } from "../runtime/index.ts";
import type { Delivery } from "../transport/index.ts";
import {
  ackAll,
  FAILED_RETRY,
  expectedOrder,
  filterKey,
  QUIET_MS,
  createRounds,
  type ExerciseCases,
} from "./exercise-case.ts";
import type { ExerciseMember } from "./exercise-harness.ts";

/** What is published arrives in order and once, and settling means what it says. */
export const deliveryCases: ExerciseCases = {
  "every group gets a copy of its own": {
    run: async (stage) => {
      const members = [await stage.addMember({ group: "a" }), await stage.addMember({ group: "b" })];
      await stage.publish(stage.message({ id: "1" }), stage.message({ id: "2" }));
      for (const member of members) {
        for (const delivery of await member.waitForDeliveries(2)) await delivery.ack();
        deepStrictEqual(member.names.toSorted(), ["1", "2"]);
      }
    },
  },
  "messages of one key arrive in the order they were published": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const keys = ["a", "b", "c", "d", "e"];
      const member = await stage.addMember({ prefetch: 4, receive: ackAll });
      for (const round of createRounds(stage, keys, 12)) await stage.publish(...round);
      await member.waitForDeliveries(60);
      for (const key of keys) deepStrictEqual(filterKey(member.names, key), expectedOrder(key, 12));
    },
  },
  "the order key is the same for one key, differs between keys, and is missing without one": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const member = await stage.addMember({ receive: ackAll });
      const keyed = ["a", "a", "b"].map((key, n) => stage.message({ id: String(n), key }));
      await stage.publish(...keyed, stage.message({ id: "3" }));
      await member.waitForDeliveries(4);
      const order = new Map(member.received.map((delivery) => [stage.readName(delivery), delivery.orderKey]));
      ok(order.get("0") !== null && order.get("0") === order.get("1"));
      ok(order.get("2") !== null && order.get("2") !== order.get("0"));
      strictEqual(order.get("3"), null);
    },
  },
  "competing members share the messages of a group, each to one of them, in order per key": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const all: string[] = [];
      const receive = (delivery: Delivery): unknown => all.push(stage.readName(delivery)) && delivery.ack();
      const members: ExerciseMember[] = [];
      for (let n = 0; n < 3; n++) {
        members.push(
          await stage.addMember({
            transport: n === 0 ? stage.transport : await stage.openAnother(),
            receive,
          }),
        );
      }
      const keys = expectedOrder("k", 20).map((key) => `${key}-`);
      for (const round of createRounds(stage, keys, 6)) await stage.publish(...round);
      await stage.waitUntil(() => all.length >= 120);
      await sleep(QUIET_MS);
      strictEqual(all.length, 120);
      for (const key of keys) deepStrictEqual(filterKey(all, key), expectedOrder(key, 6));
    },
  },
  "a released delivery comes back unharmed": {
    run: async (stage) => {
      const member = await stage.addMember();
      await stage.publish(stage.message({ id: "1" }));
      await (await member.waitForDeliveries(1))[0]?.release();
      const [, again] = await member.waitForDeliveries(2);
      strictEqual(again?.attempt, 1);
      await again.ack();
    },
  },
  "a delivery is settled once; what is said later changes nothing": {
    run: async (stage) => {
      const member = await stage.addMember();
      await stage.publish(stage.message({ id: "1" }));
      const [delivery] = await member.waitForDeliveries(1);
      await delivery?.ack();
      await delivery?.retry({ ...FAILED_RETRY, delayMs: 0 });
      await delivery?.release();
      await delivery?.ack();
      await sleep(QUIET_MS);
      deepStrictEqual(member.names, ["1"]);
    },
  },
  "paused, it takes nothing new, and what is handed out may still be settled": {
    run: async (stage) => {
      const member = await stage.addMember({ prefetch: 1 });
      await stage.publish(stage.message({ id: "1", key: "k" }), stage.message({ id: "2", key: "k" }));
      const [first] = await member.waitForDeliveries(1);
      await member.consumption?.pause();
      await first?.ack();
      await sleep(QUIET_MS);
      deepStrictEqual(member.names, ["1"]);
      await member.close();
      const next = await stage.addMember();
      await (await next.waitForDeliveries(1))[0]?.ack();
      deepStrictEqual(next.names, ["2"]);
    },
  },
  "closing gives back what is unsettled, unharmed and in order": {
    run: async (stage) => {
      const member = await stage.addMember({ prefetch: 10 });
      await stage.publish(...expectedOrder("a", 3).map((id) => stage.message({ id, key: "a" })));
      await (await member.waitForDeliveries(3))[0]?.ack();
      await member.close();
      const next = await stage.addMember({ receive: ackAll });
      await next.waitForDeliveries(2);
      deepStrictEqual(next.names, ["a1", "a2"]);
      deepStrictEqual(
        next.received.map(({ attempt }) => attempt),
        [1, 1],
      );
    },
  },
};
