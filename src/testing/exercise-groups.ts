import { deepStrictEqual, strictEqual } from "node:assert/strict";
import { sleep } from "../runtime/index.ts";
import {
  ackAll,
  FAILED_RETRY,
  expectedOrder,
  filterKey,
  QUIET_MS,
  createRounds,
  type ExerciseCases,
} from "./exercise-case.ts";

/** Groups that come late, come again, or lose a member. */
export const groupCases: ExerciseCases = {
  "a group that begins now does not get what came before": {
    run: async (stage) => {
      const early = await stage.addMember({ group: "early", receive: ackAll });
      await stage.publish(stage.message({ id: "before" }));
      await early.waitForDeliveries(1);
      const late = await stage.addMember({ group: "late", from: "now", receive: ackAll });
      await stage.publish(stage.message({ id: "after" }));
      await late.waitForDeliveries(1);
      await sleep(QUIET_MS);
      deepStrictEqual(late.names, ["after"]);
    },
  },
  "a group that asks for the beginning gets all there was, in order": {
    needs: ["replays", "ordersByKey"],
    run: async (stage) => {
      for (const round of createRounds(stage, ["a", "b"], 4)) await stage.publish(...round);
      const early = await stage.addMember({ group: "early", from: "beginning", receive: ackAll });
      await early.waitForDeliveries(8);
      const late = await stage.addMember({ group: "late", from: "beginning", receive: ackAll });
      await late.waitForDeliveries(8);
      for (const key of ["a", "b"]) deepStrictEqual(filterKey(late.names, key), expectedOrder(key, 4));
    },
  },
  "what nobody has claimed waits for the first group, and for no other": {
    needs: ["keepsUnrouted"],
    run: async (stage) => {
      await stage.publish(stage.message({ id: "early" }));
      const first = await stage.addMember({ group: "first", from: "unclaimed", receive: ackAll });
      await first.waitForDeliveries(1);
      const second = await stage.addMember({ group: "second", from: "unclaimed", receive: ackAll });
      await stage.publish(stage.message({ id: "later" }));
      await second.waitForDeliveries(1);
      await first.waitForDeliveries(2);
      await sleep(QUIET_MS);
      deepStrictEqual([first.names, second.names], [["early", "later"], ["later"]]);
    },
  },
  "a group that comes again goes on where it was": {
    needs: ["keepsUnrouted"],
    run: async (stage) => {
      const once = await stage.addMember({ receive: ackAll });
      await stage.publish(stage.message({ id: "1" }));
      await once.waitForDeliveries(1);
      await once.close();
      await stage.publish(stage.message({ id: "2" }));
      const again = await stage.addMember({ receive: ackAll });
      await again.waitForDeliveries(1);
      deepStrictEqual(again.names, ["2"]);
    },
  },
  "what a dead member held goes to the others, in order, and nothing is lost": {
    needs: ["ordersByKey", "abandon"],
    run: async (stage) => {
      const doomed = await stage.openAnother();
      const dying = await stage.addMember({ transport: doomed, prefetch: 4 });
      for (const round of createRounds(stage, ["a", "b"], 5)) await stage.publish(...round);
      await dying.waitForDeliveries(1);
      stage.abandon(doomed);
      const heir = await stage.addMember({ receive: ackAll });
      await heir.waitForDeliveries(10);
      for (const key of ["a", "b"]) deepStrictEqual(filterKey(heir.names, key), expectedOrder(key, 5));
    },
  },
  "what a dead member held comes again uncharged, and earlier failures still count": {
    needs: ["delaysRedelivery", "abandon"],
    run: async (stage) => {
      const doomed = await stage.openAnother();
      const dying = await stage.addMember({ transport: doomed, prefetch: 4 });
      await stage.publish(stage.message({ id: "fresh" }), stage.message({ id: "failed" }));
      const first = await dying.waitForDeliveries(2);
      await first
        .find((delivery) => stage.readName(delivery) === "failed")
        ?.retry({ ...FAILED_RETRY, delayMs: 20 });
      strictEqual((await dying.waitForDeliveries(3))[2]?.attempt, 2);
      stage.abandon(doomed);
      const heir = await stage.addMember({ receive: ackAll });
      const left = await heir.waitForDeliveries(2);
      const attempts = left.map((delivery) => [stage.readName(delivery), delivery.attempt] as const);
      deepStrictEqual(Object.fromEntries(attempts), { fresh: 1, failed: 2 });
    },
  },
  "groups of two services that have the same name each get a copy": {
    run: async (stage) => {
      const shop = await stage.addMember({ service: "shop", receive: ackAll });
      const books = await stage.addMember({ service: "books", receive: ackAll });
      await stage.publish(...expectedOrder("m", 5).map((id) => stage.message({ id })));
      await Promise.all([shop.waitForDeliveries(5), books.waitForDeliveries(5)]);
      await sleep(QUIET_MS);
      for (const { names } of [shop, books]) deepStrictEqual(names.toSorted(), expectedOrder("m", 5));
    },
  },
  "commands arrive in order, each at one member of their group": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const topic = `commands.${stage.topic}`;
      const all: string[] = [];
      for (const transport of [stage.transport, await stage.openAnother()]) {
        await stage.addMember({
          topic,
          kind: "command",
          transport,
          receive: (delivery) => all.push(stage.readName(delivery)) && delivery.ack(),
        });
      }
      for (const id of expectedOrder("c", 9)) {
        await stage.publish(stage.message({ id, topic, kind: "command", key: "k", target: "exercise" }));
      }
      await stage.waitUntil(() => all.length >= 9);
      await sleep(QUIET_MS);
      deepStrictEqual(all, expectedOrder("c", 9));
    },
  },
};
