import { deepStrictEqual, ok, strictEqual } from "node:assert/strict";
import { sleep } from "../runtime/index.ts";
import type { Delivery } from "../transport/index.ts";
import {
  ackAll,
  FAILED_RETRY,
  withoutRepeats,
  expectedOrder,
  filterKey,
  QUIET_MS,
  createRounds,
  type ExerciseCases,
} from "./exercise-case.ts";

const KEYS = ["a", "b", "c", "d", "e"];

/** Many messages on their way: slow members, stops and broken connections. */
export const flowCases: ExerciseCases = {
  "no more than the prefetch is unsettled at once": {
    run: async (stage) => {
      const member = await stage.addMember({ prefetch: 3 });
      await stage.publish(...expectedOrder("m", 8).map((id) => stage.message({ id })));
      await member.waitForDeliveries(3);
      await sleep(QUIET_MS);
      strictEqual(member.received.length, 3);
      for (let n = 0; n < 8; n++) await (await member.waitForDeliveries(n + 1))[n]?.ack();
      deepStrictEqual(member.names.toSorted(), expectedOrder("m", 8));
    },
  },
  "under load no member ever holds more than its prefetch": {
    run: async (stage) => {
      let done = 0;
      let most = 0;
      for (const transport of [stage.transport, await stage.openAnother()]) {
        let held = 0;
        const work = async (delivery: Delivery): Promise<void> => {
          most = Math.max(most, ++held);
          await sleep(1);
          held -= 1;
          done += 1;
          await delivery.ack();
        };
        await stage.addMember({ transport, prefetch: 3, receive: work });
      }
      for (const round of createRounds(stage, [...KEYS, "f", "g", "h"], 15)) await stage.publish(...round);
      await stage.waitUntil(() => done >= 120);
      strictEqual(done, 120);
      ok(most <= 3, `${most} were unsettled at once`);
    },
  },
  "what comes back from a retry counts against the prefetch too": {
    needs: ["delaysRedelivery"],
    run: async (stage) => {
      const member = await stage.addMember({ prefetch: 2 });
      const createMessage = (id: string) => stage.message({ id, key: id });
      await stage.publish(createMessage("a"), createMessage("b"));
      for (const delivery of await member.waitForDeliveries(2))
        await delivery.retry({ ...FAILED_RETRY, delayMs: 0 });
      await stage.publish(createMessage("c"), createMessage("d"));
      await member.waitForDeliveries(4);
      await sleep(2 * QUIET_MS);
      strictEqual(member.received.length, 4);
      for (let n = 3; n <= 6; n++) await (await member.waitForDeliveries(n))[n - 1]?.ack();
      deepStrictEqual(member.names.slice(2).toSorted(), ["a", "b", "c", "d"]);
    },
  },
  "a member that settles nothing does not stop the others, and nothing comes twice": {
    run: async (stage) => {
      const slow = await stage.addMember({ prefetch: 2 });
      const quick = await stage.addMember({
        transport: await stage.openAnother(),
        prefetch: 2,
        receive: ackAll,
      });
      const ids = expectedOrder("m", 60);
      for (const id of ids) await stage.publish(stage.message({ id }));
      await slow.waitForDeliveries(1);
      await quick.waitForDeliveries(6);
      ok(slow.received.length <= 2, `${slow.received.length} were unsettled at once`);
      let settled = 0;
      await stage.waitUntil(() => {
        for (const delivery of slow.received.slice(settled)) void delivery.ack();
        settled = slow.received.length;
        return settled + quick.received.length >= 60;
      });
      await sleep(QUIET_MS);
      deepStrictEqual([...slow.names, ...quick.names].toSorted(), ids.toSorted());
    },
  },
  "stopped in the middle of a flow, it gives back the unsettled: nothing lost, nothing done comes twice": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const done: string[] = [];
      let stopping = false;
      const leaving = await stage.addMember({
        prefetch: 8,
        receive: (delivery) => {
          if (stopping) return;
          done.push(stage.readName(delivery));
          return delivery.ack();
        },
      });
      const flow = createRounds(stage, KEYS, 20);
      for (const round of flow.slice(0, 10)) await stage.publish(...round);
      await leaving.waitForDeliveries(12);
      stopping = true;
      const closing = leaving.close();
      for (const round of flow.slice(10)) await stage.publish(...round);
      await closing;
      const next = await stage.addMember({ receive: ackAll });
      await next.waitForDeliveries(100 - done.length);
      await sleep(QUIET_MS);
      for (const key of KEYS)
        deepStrictEqual(filterKey([...done, ...next.names], key), expectedOrder(key, 20));
    },
  },
  "paused and closed when all in hand is settled, it leaves nothing that comes twice": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const leaving = await stage.addMember({
        transport: await stage.openAnother(),
        prefetch: 4,
        receive: ackAll,
      });
      const flow = createRounds(stage, KEYS, 12);
      for (const round of flow.slice(0, 6)) await stage.publish(...round);
      await leaving.waitForDeliveries(5);
      await leaving.consumption?.pause();
      await leaving.close();
      const next = await stage.addMember({ receive: ackAll });
      for (const round of flow.slice(6)) await stage.publish(...round);
      await next.waitForDeliveries(60 - leaving.received.length);
      await sleep(QUIET_MS);
      for (const key of KEYS) {
        deepStrictEqual(filterKey([...leaving.names, ...next.names], key), expectedOrder(key, 12));
      }
    },
  },
  "when every connection breaks, publishing and consuming go on: nothing lost, order per key kept": {
    needs: ["ordersByKey", "cutConnections"],
    run: async (stage) => {
      const member = await stage.addMember({
        prefetch: 4,
        receive: (delivery) => void sleep(2).then(() => delivery.ack().catch(() => undefined)),
      });
      const flow = createRounds(stage, KEYS, 12);
      for (const [n, round] of flow.entries()) {
        if (n % 4 === 2) await stage.cutConnections();
        await stage.publishUntilAccepted(...round);
      }
      await member.waitUntil(() => new Set(member.names).size === 60, "all 60 messages");
      for (const key of KEYS)
        deepStrictEqual(withoutRepeats(filterKey(member.names, key)), expectedOrder(key, 12));
    },
  },
};
