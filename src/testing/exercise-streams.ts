import { deepStrictEqual, rejects } from "node:assert/strict";
import type { Message } from "../message/index.ts";
import { sleep, systemClock } from "../runtime/index.ts";
import { ackAll, inOrder, QUIET_MS, type ExerciseCases } from "./exercise-case.ts";
import type { Stage } from "./exercise-stage.ts";

/** Brokers know a time by the second at worst, so what is to lie before it is this much older. */
const TELLABLE_MS = 1_100;

const streamTopic = (stage: Stage): string => `streams.${stage.topic}`;

const tick = (stage: Stage, id: string): Message =>
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
      await stage.publish(...inOrder("s", 3).map((id) => tick(stage, id)));
      const first = await stage.member({ ...stream, group: "first", receive: ackAll });
      await first.got(3);
      await first.close();
      await stage.publish(tick(stage, "s3"));
      const second = await stage.member({ ...stream, group: "second", receive: ackAll });
      const again = await stage.member({ ...stream, group: "first", receive: ackAll });
      await Promise.all([second.got(4), again.got(1)]);
      await sleep(QUIET_MS);
      deepStrictEqual([second.names, again.names], [inOrder("s", 4), ["s3"]]);
    },
  },
  "a stream is read from a time on by each new group, and on from where it was": {
    needs: ["ordersByKey", "replaysFromTime"],
    run: async (stage) => {
      await stage.publish(...inOrder("old", 3).map((id) => tick(stage, id)));
      await sleep(TELLABLE_MS);
      const from = { time: new Date(systemClock.wallMs()) };
      const stream = { topic: streamTopic(stage), kind: "stream", from } as const;
      // For the first one nothing is as young as the time it asks for.
      const early = await stage.member({ ...stream, group: "early", receive: ackAll });
      await stage.publish(...inOrder("s", 3).map((id) => tick(stage, id)));
      const once = await stage.member({ ...stream, group: "late", receive: ackAll });
      await Promise.all([early.got(3), once.got(3)]);
      await once.close();
      await stage.publish(tick(stage, "s3"));
      const again = await stage.member({ ...stream, group: "late", receive: ackAll });
      await Promise.all([early.got(4), again.got(1)]);
      await sleep(QUIET_MS);
      deepStrictEqual([early.names, once.names, again.names], [inOrder("s", 4), inOrder("s", 3), ["s3"]]);
    },
  },
  "a time is refused by who cannot begin there, instead of becoming another beginning": {
    unless: ["replays"],
    run: async (stage) => {
      const from = { time: new Date(systemClock.wallMs()) };
      await rejects(stage.member({ kind: "event", from }), { code: "TRANSPORT_CANNOT_REPLAY" });
    },
  },
};
