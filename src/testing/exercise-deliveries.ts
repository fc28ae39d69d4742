import { deepStrictEqual, ok, strictEqual } from "node:assert/strict";
import { sleep } from "../runtime/index.ts";
import type { Delivery } from "../transport/index.ts";
import { ackAll, FAILED, inOrder, ofKey, QUIET_MS, rounds, type ExerciseCases } from "./exercise-case.ts";
import type { ExerciseMember } from "./exercise-stage.ts";

/** What is published arrives in order and once, and settling means what it says. */
export const deliveryCases: ExerciseCases = {
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
      await stage.until(() => all.length >= 120);
      await sleep(QUIET_MS);
      strictEqual(all.length, 120);
      for (const key of keys) deepStrictEqual(ofKey(all, key), inOrder(key, 6));
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
