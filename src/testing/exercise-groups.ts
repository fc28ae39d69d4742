import { deepStrictEqual, strictEqual } from "node:assert/strict";
import { sleep } from "../runtime/index.ts";
import { ackAll, FAILED, inOrder, ofKey, QUIET_MS, rounds, type ExerciseCases } from "./exercise-case.ts";

/** Groups that come late, come again, or lose a member. */
export const groupCases: ExerciseCases = {
  "a group that begins now does not get what came before": {
    run: async (stage) => {
      const early = await stage.member({ group: "early", receive: ackAll });
      await stage.publish(stage.message({ id: "before" }));
      await early.got(1);
      const late = await stage.member({ group: "late", from: "now", receive: ackAll });
      await stage.publish(stage.message({ id: "after" }));
      await late.got(1);
      await sleep(QUIET_MS);
      deepStrictEqual(late.names, ["after"]);
    },
  },
  "a group that asks for the beginning gets all there was, in order": {
    needs: ["replays", "ordersByKey"],
    run: async (stage) => {
      for (const round of rounds(stage, ["a", "b"], 4)) await stage.publish(...round);
      const early = await stage.member({ group: "early", from: "beginning", receive: ackAll });
      await early.got(8);
      const late = await stage.member({ group: "late", from: "beginning", receive: ackAll });
      await late.got(8);
      for (const key of ["a", "b"]) deepStrictEqual(ofKey(late.names, key), inOrder(key, 4));
    },
  },
  "what nobody has claimed waits for the first group, and for no other": {
    needs: ["keepsUnrouted"],
    run: async (stage) => {
      await stage.publish(stage.message({ id: "early" }));
      const first = await stage.member({ group: "first", from: "unclaimed", receive: ackAll });
      await first.got(1);
      const second = await stage.member({ group: "second", from: "unclaimed", receive: ackAll });
      await stage.publish(stage.message({ id: "later" }));
      await second.got(1);
      await first.got(2);
      await sleep(QUIET_MS);
      deepStrictEqual([first.names, second.names], [["early", "later"], ["later"]]);
    },
  },
  "a group that comes again goes on where it was": {
    needs: ["keepsUnrouted"],
    run: async (stage) => {
      const once = await stage.member({ receive: ackAll });
      await stage.publish(stage.message({ id: "1" }));
      await once.got(1);
      await once.close();
      await stage.publish(stage.message({ id: "2" }));
      const again = await stage.member({ receive: ackAll });
      await again.got(1);
      deepStrictEqual(again.names, ["2"]);
    },
  },
  "what a dead member held goes to the others, in order, and nothing is lost": {
    needs: ["ordersByKey", "abandon"],
    run: async (stage) => {
      const doomed = await stage.another();
      const dying = await stage.member({ transport: doomed, prefetch: 4 });
      for (const round of rounds(stage, ["a", "b"], 5)) await stage.publish(...round);
      await dying.got(1);
      stage.abandon(doomed);
      const heir = await stage.member({ receive: ackAll });
      await heir.got(10);
      for (const key of ["a", "b"]) deepStrictEqual(ofKey(heir.names, key), inOrder(key, 5));
    },
  },
  "what a dead member held comes again uncharged, and earlier failures still count": {
    needs: ["delaysRedelivery", "abandon"],
    run: async (stage) => {
      const doomed = await stage.another();
      const dying = await stage.member({ transport: doomed, prefetch: 4 });
      await stage.publish(stage.message({ id: "fresh" }), stage.message({ id: "failed" }));
      const first = await dying.got(2);
      await first.find((delivery) => stage.nameOf(delivery) === "failed")?.retry({ ...FAILED, delayMs: 20 });
      strictEqual((await dying.got(3))[2]?.attempt, 2);
      stage.abandon(doomed);
      const heir = await stage.member({ receive: ackAll });
      const left = await heir.got(2);
      const attempts = left.map((delivery) => [stage.nameOf(delivery), delivery.attempt] as const);
      deepStrictEqual(Object.fromEntries(attempts), { fresh: 1, failed: 2 });
    },
  },
  "groups of two services that have the same name each get a copy": {
    run: async (stage) => {
      const shop = await stage.member({ service: "shop", receive: ackAll });
      const books = await stage.member({ service: "books", receive: ackAll });
      await stage.publish(...inOrder("m", 5).map((id) => stage.message({ id })));
      await Promise.all([shop.got(5), books.got(5)]);
      await sleep(QUIET_MS);
      for (const { names } of [shop, books]) deepStrictEqual(names.toSorted(), inOrder("m", 5));
    },
  },
  "commands arrive in order, each at one member of their group": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const topic = `commands.${stage.topic}`;
      const all: string[] = [];
      for (const transport of [stage.transport, await stage.another()]) {
        await stage.member({
          topic,
          kind: "command",
          transport,
          receive: (delivery) => all.push(stage.nameOf(delivery)) && delivery.ack(),
        });
      }
      for (const id of inOrder("c", 9)) {
        await stage.publish(stage.message({ id, topic, kind: "command", key: "k", target: "exercise" }));
      }
      await stage.until(() => all.length >= 9);
      await sleep(QUIET_MS);
      deepStrictEqual(all, inOrder("c", 9));
    },
  },
};
