import { deepStrictEqual, ok, strictEqual } from "node:assert/strict";
import { systemClock } from "../runtime/index.ts";
import { FAILED_RETRY, expectedOrder, type ExerciseCases } from "./exercise-case.ts";

/** What fails comes back: when it is due, counted, and where order is claimed before its successors. */
export const retryCases: ExerciseCases = {
  "a retry comes back after its delay, one attempt older, with its successors behind it": {
    needs: ["ordersByKey", "ordersRetries"],
    run: async (stage) => {
      const member = await stage.addMember({ prefetch: 1 });
      await stage.publish(...expectedOrder("a", 3).map((id) => stage.message({ id, key: "a" })));
      const [failed] = await member.waitForDeliveries(1);
      // From before it is said: the broker may take its time to confirm, and the delay runs meanwhile.
      const failedAt = systemClock.monotonicMs();
      await failed?.retry({ ...FAILED_RETRY, delayMs: 2_500 });
      await stage.publish(stage.message({ id: "b0", key: "b" }));
      await (await member.waitForDeliveries(2))[1]?.ack();
      for (let n = 3; n <= 5; n++) await (await member.waitForDeliveries(n))[n - 1]?.ack();
      ok(systemClock.monotonicMs() - failedAt > 2_450, "it came back too early");
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
      const member = await stage.addMember({ prefetch: 1 });
      await stage.publish(stage.message({ id: "late" }));
      const [failed] = await member.waitForDeliveries(1);
      // From before it is said: the broker may take its time to confirm, and the delay runs meanwhile.
      const failedAt = systemClock.monotonicMs();
      await failed?.retry({ ...FAILED_RETRY, delayMs: 2_500 });
      await stage.publish(stage.message({ id: "next" }));
      for (let n = 2; n <= 3; n++) await (await member.waitForDeliveries(n))[n - 1]?.ack();
      ok(systemClock.monotonicMs() - failedAt > 2_450, "it came back too early");
      deepStrictEqual(member.names, ["late", "next", "late"]);
      strictEqual(member.received[2]?.attempt, 2);
    },
  },
  "a retry that is not charged counts no attempt": {
    run: async (stage) => {
      const member = await stage.addMember();
      await stage.publish(stage.message());
      await (
        await member.waitForDeliveries(1)
      )[0]?.retry({ charged: false, error: "not its fault", delayMs: 0 });
      const [, again] = await member.waitForDeliveries(2);
      strictEqual(again?.attempt, 1);
      await again.ack();
    },
  },
  "when a head is retried and its successors are given back, all come again in order": {
    needs: ["ordersByKey", "ordersRetries"],
    run: async (stage) => {
      const member = await stage.addMember({ prefetch: 10 });
      await stage.publish(...expectedOrder("a", 3).map((id) => stage.message({ id, key: "a" })));
      const [head, ...rest] = await member.waitForDeliveries(3);
      await Promise.all([
        head?.retry({ ...FAILED_RETRY, delayMs: 50 }),
        ...rest.map((delivery) => delivery.release()),
      ]);
      for (let n = 4; n <= 6; n++) await (await member.waitForDeliveries(n))[n - 1]?.ack();
      deepStrictEqual(member.names, [...expectedOrder("a", 3), ...expectedOrder("a", 3)]);
      deepStrictEqual(
        member.received.slice(3).map(({ attempt }) => attempt),
        [2, 1, 1],
      );
    },
  },
  "paused, what is in hand may still fail, and that counts": {
    run: async (stage) => {
      const member = await stage.addMember({ prefetch: 1 });
      await stage.publish(stage.message({ id: "1", key: "k" }));
      const [delivery] = await member.waitForDeliveries(1);
      await member.consumption?.pause();
      await delivery?.retry({ ...FAILED_RETRY, delayMs: 0 });
      await member.close();
      const next = await stage.addMember({ receive: (again) => again.ack() });
      strictEqual((await next.waitForDeliveries(1))[0]?.attempt, 2);
    },
  },
  "a message that always fails comes back one attempt older each time, and holds nobody up": {
    needs: ["delaysRedelivery"],
    run: async (stage) => {
      const attempts: number[] = [];
      const member = await stage.addMember({
        prefetch: 2,
        receive: (delivery) => {
          if (stage.readName(delivery) !== "poison") return delivery.ack();
          attempts.push(delivery.attempt);
          return attempts.length < 4 ? delivery.retry({ ...FAILED_RETRY, delayMs: 30 }) : delivery.ack();
        },
      });
      await stage.publish(
        stage.message({ id: "poison" }),
        ...expectedOrder("m", 9).map((id) => stage.message({ id })),
      );
      await member.waitForDeliveries(13);
      deepStrictEqual(attempts, [1, 2, 3, 4]);
      deepStrictEqual(member.names.filter((name) => name !== "poison").toSorted(), expectedOrder("m", 9));
    },
  },
  "a group without order gets every message, none with an order key, and its retries come back": {
    needs: ["delaysRedelivery"],
    run: async (stage) => {
      const member = await stage.addMember({
        ordered: false,
        receive: (delivery) => {
          const fails = stage.readName(delivery) === "a0" && delivery.attempt === 1;
          return fails ? delivery.retry({ ...FAILED_RETRY, delayMs: 50 }) : delivery.ack();
        },
      });
      await stage.publish(...expectedOrder("a", 8).map((id) => stage.message({ id, key: "a" })));
      const all = await member.waitForDeliveries(9);
      deepStrictEqual(member.names.toSorted(), ["a0", ...expectedOrder("a", 8)]);
      deepStrictEqual(new Set(all.map(({ orderKey }) => orderKey)), new Set([null]));
      const again = all.filter((delivery) => stage.readName(delivery) === "a0");
      deepStrictEqual(
        again.map(({ attempt }) => attempt),
        [1, 2],
      );
    },
  },
};
