import { deepStrictEqual } from "node:assert/strict";
import { sleep } from "../runtime/index.ts";
import { ackAll, inOrder, ofKey, QUIET_MS, rounds, type ExerciseCases } from "./exercise-case.ts";

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
};
