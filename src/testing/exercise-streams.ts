import { deepStrictEqual, rejects } from "node:assert/strict";
import type { Message } from "../message/index.ts";
import { sleep, systemClock } from "../runtime/index.ts";
import { ackAll, expectedOrder, QUIET_MS, type ExerciseCases } from "./exercise-case.ts";
import type { ExerciseHarness } from "./exercise-harness.ts";

/** Brokers know a time by the second at worst, so what is to lie before it is this much older. */
const MIN_TIME_GAP_MS = 1_100;

const streamTopic = (stage: ExerciseHarness): string => `streams.${stage.topic}`;

const streamMessage = (stage: ExerciseHarness, id: string): Message =>
  stage.message({
    id,
    key: "k",
    topic: streamTopic(stage),
    kind: "stream",
    writtenAt: new Date(systemClock.wallMs()).toISOString(),
  });

/** What is kept and can be read from an earlier place. */
export const streamCases: ExerciseCases = {
  "a stream is read in order from its beginning by each group, and on from where it was": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const stream = { topic: streamTopic(stage), kind: "stream", from: "beginning" } as const;
      await stage.publish(...expectedOrder("s", 3).map((id) => streamMessage(stage, id)));
      const first = await stage.addMember({ ...stream, group: "first", receive: ackAll });
      await first.waitForDeliveries(3);
      await first.close();
      await stage.publish(streamMessage(stage, "s3"));
      const second = await stage.addMember({ ...stream, group: "second", receive: ackAll });
      const again = await stage.addMember({ ...stream, group: "first", receive: ackAll });
      await Promise.all([second.waitForDeliveries(4), again.waitForDeliveries(1)]);
      await sleep(QUIET_MS);
      deepStrictEqual([second.names, again.names], [expectedOrder("s", 4), ["s3"]]);
    },
  },
  "a stream is read from a time on by each new group, and on from where it was": {
    needs: ["ordersByKey", "replaysFromTime"],
    run: async (stage) => {
      await stage.publish(...expectedOrder("old", 3).map((id) => streamMessage(stage, id)));
      await sleep(MIN_TIME_GAP_MS);
      const from = { time: new Date(systemClock.wallMs()) };
      const stream = { topic: streamTopic(stage), kind: "stream", from } as const;
      // For the first one nothing is as young as the time it asks for.
      const early = await stage.addMember({ ...stream, group: "early", receive: ackAll });
      await stage.publish(...expectedOrder("s", 3).map((id) => streamMessage(stage, id)));
      const once = await stage.addMember({ ...stream, group: "late", receive: ackAll });
      await Promise.all([early.waitForDeliveries(3), once.waitForDeliveries(3)]);
      await once.close();
      await stage.publish(streamMessage(stage, "s3"));
      const again = await stage.addMember({ ...stream, group: "late", receive: ackAll });
      await Promise.all([early.waitForDeliveries(4), again.waitForDeliveries(1)]);
      await sleep(QUIET_MS);
      deepStrictEqual(
        [early.names, once.names, again.names],
        [expectedOrder("s", 4), expectedOrder("s", 3), ["s3"]],
      );
    },
  },
  "a time is refused by who cannot begin there, instead of becoming another beginning": {
    unless: ["replays"],
    run: async (stage) => {
      const from = { time: new Date(systemClock.wallMs()) };
      await rejects(stage.addMember({ kind: "event", from }), { code: "TRANSPORT_CANNOT_REPLAY" });
    },
  },
};
