import { deepStrictEqual, ok, strictEqual } from "node:assert/strict";
import { sleep, systemClock } from "../runtime/index.ts";
import type { Delivery } from "../transport/index.ts";
import {
  ackAll,
  createRounds,
  type ExerciseCases,
  type ExerciseHarness,
  expectedOrder,
  FAILED_RETRY,
  filterKey,
  QUIET_MS,
  withoutRepeats,
} from "./exercise-harness.ts";

const KEYS = ["a", "b", "c", "d", "e"];

/** Cases with many messages in flight: slow members, stops and broken connections. */
export const flowCases: ExerciseCases = {
  "at most prefetch deliveries are unsettled at once": {
    run: async (harness) => {
      const member = await harness.addMember({ prefetch: 3 });
      await harness.publish(...expectedOrder("m", 8).map((id) => harness.message({ id })));
      await member.waitForDeliveries(3);
      await sleep(QUIET_MS);
      strictEqual(member.received.length, 3);
      for (let n = 0; n < 8; n++) await (await member.waitForDeliveries(n + 1))[n]?.ack();
      deepStrictEqual(member.names.toSorted(), expectedOrder("m", 8));
    },
  },
  "under load no member holds more than its prefetch": {
    run: async (harness) => {
      let done = 0;
      let most = 0;
      for (const transport of [harness.transport, await harness.openAnother()]) {
        let held = 0;
        const work = async (delivery: Delivery): Promise<void> => {
          most = Math.max(most, ++held);
          await sleep(1);
          held -= 1;
          done += 1;
          await delivery.ack();
        };
        await harness.addMember({ transport, prefetch: 3, receive: work });
      }
      for (const round of createRounds(harness, [...KEYS, "f", "g", "h"], 15))
        await harness.publish(...round);
      await harness.waitUntil(() => done >= 120);
      strictEqual(done, 120);
      ok(most <= 3, `${most} were unsettled at once`);
    },
  },
  "retried deliveries count towards the prefetch too": {
    needs: ["delaysRedelivery"],
    run: async (harness) => {
      const member = await harness.addMember({ prefetch: 2 });
      const createMessage = (id: string) => harness.message({ id, key: id });
      await harness.publish(createMessage("a"), createMessage("b"));
      for (const delivery of await member.waitForDeliveries(2))
        await delivery.retry({ ...FAILED_RETRY, delayMs: 0 });
      await harness.publish(createMessage("c"), createMessage("d"));
      await member.waitForDeliveries(4);
      await sleep(2 * QUIET_MS);
      strictEqual(member.received.length, 4);
      for (let n = 3; n <= 6; n++) await (await member.waitForDeliveries(n))[n - 1]?.ack();
      deepStrictEqual(member.names.slice(2).toSorted(), ["a", "b", "c", "d"]);
    },
  },
  "a member that settles nothing does not block the others, and nothing is delivered twice": {
    run: async (harness) => {
      const slow = await harness.addMember({ prefetch: 2 });
      const quick = await harness.addMember({
        transport: await harness.openAnother(),
        prefetch: 2,
        receive: ackAll,
      });
      const ids = expectedOrder("m", 60);
      for (const id of ids) await harness.publish(harness.message({ id }));
      await slow.waitForDeliveries(1);
      await quick.waitForDeliveries(6);
      ok(slow.received.length <= 2, `${slow.received.length} were unsettled at once`);
      let settled = 0;
      await harness.waitUntil(() => {
        for (const delivery of slow.received.slice(settled)) void delivery.ack();
        settled = slow.received.length;
        return settled + quick.received.length >= 60;
      });
      await sleep(QUIET_MS);
      deepStrictEqual([...slow.names, ...quick.names].toSorted(), ids.toSorted());
    },
  },
  "a member that leaves under load returns unsettled deliveries: nothing is lost or repeated": {
    needs: ["ordersByKey"],
    run: async (harness) => {
      const done: string[] = [];
      let stopping = false;
      const leaving = await harness.addMember({
        prefetch: 8,
        receive: (delivery) => {
          if (stopping) return;
          done.push(harness.readName(delivery));
          return delivery.ack();
        },
      });
      const flow = createRounds(harness, KEYS, 20);
      for (const round of flow.slice(0, 10)) await harness.publish(...round);
      await leaving.waitForDeliveries(12);
      stopping = true;
      const closing = leaving.close();
      for (const round of flow.slice(10)) await harness.publish(...round);
      await closing;
      const next = await harness.addMember({ receive: ackAll });
      await next.waitForDeliveries(100 - done.length);
      await sleep(QUIET_MS);
      for (const key of KEYS)
        deepStrictEqual(filterKey([...done, ...next.names], key), expectedOrder(key, 20));
    },
  },
  "a member that is paused and then closed leaves nothing that is delivered twice": {
    needs: ["ordersByKey"],
    run: async (harness) => {
      const leaving = await harness.addMember({
        transport: await harness.openAnother(),
        prefetch: 4,
        receive: ackAll,
      });
      const flow = createRounds(harness, KEYS, 12);
      for (const round of flow.slice(0, 6)) await harness.publish(...round);
      await leaving.waitForDeliveries(5);
      await leaving.consumption?.pause();
      await leaving.close();
      const next = await harness.addMember({ receive: ackAll });
      for (const round of flow.slice(6)) await harness.publish(...round);
      await next.waitForDeliveries(60 - leaving.received.length);
      await sleep(QUIET_MS);
      for (const key of KEYS) {
        deepStrictEqual(filterKey([...leaving.names, ...next.names], key), expectedOrder(key, 12));
      }
    },
  },
  "when every connection breaks, publishing and consuming continue: nothing is lost, order per key is kept": {
    needs: ["ordersByKey", "cutConnections"],
    run: async (harness) => {
      const member = await harness.addMember({
        prefetch: 4,
        receive: (delivery) => void sleep(2).then(() => delivery.ack().catch(() => undefined)),
      });
      const flow = createRounds(harness, KEYS, 12);
      for (const [n, round] of flow.entries()) {
        if (n % 4 === 2) await harness.cutConnections();
        await harness.publishUntilAccepted(...round);
      }
      await member.waitUntil(() => new Set(member.names).size === 60, "all 60 messages");
      for (const key of KEYS)
        deepStrictEqual(withoutRepeats(filterKey(member.names, key)), expectedOrder(key, 12));
    },
  },
};

/** Checks the lag of a group that is away, returns, and handles what it missed. */
async function checkLag(harness: ExerciseHarness, group: string, ordered: boolean): Promise<void> {
  const away = await harness.addMember({ group, ordered });
  await away.close();
  await harness.publish(...KEYS.map((key) => harness.message({ key })));
  const behind = await harness.waitForLag(({ waiting }) => waiting === KEYS.length, group, ordered);
  strictEqual(behind?.waiting, KEYS.length);
  ok(behind.topic === harness.topic || behind.topic === null);
  ok(behind.oldestAgeSeconds === "unknown" || behind.oldestAgeSeconds >= 0);
  const back = await harness.addMember({ group, ordered, receive: ackAll });
  await back.waitForDeliveries(KEYS.length);
  const caughtUp = await harness.waitForLag(
    ({ waiting, oldestAgeSeconds }) => waiting === 0 && oldestAgeSeconds === 0,
    group,
    ordered,
  );
  deepStrictEqual([caughtUp?.waiting, caughtUp?.oldestAgeSeconds], [0, 0]);
}

/** Cases about how far a group is behind. */
export const lagCases: ExerciseCases = {
  "the lag of a group is what it has not handled, and 0 when it has caught up": {
    needs: ["reportsLag"],
    run: async (harness) => {
      await checkLag(harness, "in-order", true);
      await checkLag(harness, "without-order", false);
    },
  },
  "the lag of a group that never subscribed is unknown, not 0": {
    needs: ["reportsLag"],
    run: async (harness) => {
      const member = await harness.addMember({ receive: ackAll });
      await harness.publish(harness.message());
      await member.waitForDeliveries(1);
      strictEqual((await harness.readLag("nobody"))?.waiting ?? "unknown", "unknown");
    },
  },
};

/** Cases about groups: starting points, leaving and rejoining, and crashed members. */
export const groupCases: ExerciseCases = {
  "a group that starts now does not get earlier messages": {
    run: async (harness) => {
      const early = await harness.addMember({ group: "early", receive: ackAll });
      await harness.publish(harness.message({ id: "before" }));
      await early.waitForDeliveries(1);
      const late = await harness.addMember({ group: "late", from: "now", receive: ackAll });
      await harness.publish(harness.message({ id: "after" }));
      await late.waitForDeliveries(1);
      await sleep(QUIET_MS);
      deepStrictEqual(late.names, ["after"]);
    },
  },
  "a group that starts at the beginning gets all messages in order": {
    needs: ["replays", "ordersByKey"],
    run: async (harness) => {
      for (const round of createRounds(harness, ["a", "b"], 4)) await harness.publish(...round);
      const early = await harness.addMember({ group: "early", from: "beginning", receive: ackAll });
      await early.waitForDeliveries(8);
      const late = await harness.addMember({ group: "late", from: "beginning", receive: ackAll });
      await late.waitForDeliveries(8);
      for (const key of ["a", "b"]) deepStrictEqual(filterKey(late.names, key), expectedOrder(key, 4));
    },
  },
  "messages without a group wait for the first group only": {
    needs: ["keepsUnrouted"],
    run: async (harness) => {
      await harness.publish(harness.message({ id: "early" }));
      const first = await harness.addMember({ group: "first", from: "unclaimed", receive: ackAll });
      await first.waitForDeliveries(1);
      const second = await harness.addMember({ group: "second", from: "unclaimed", receive: ackAll });
      await harness.publish(harness.message({ id: "later" }));
      await second.waitForDeliveries(1);
      await first.waitForDeliveries(2);
      await sleep(QUIET_MS);
      deepStrictEqual([first.names, second.names], [["early", "later"], ["later"]]);
    },
  },
  "a group that rejoins continues where it stopped": {
    needs: ["keepsUnrouted"],
    run: async (harness) => {
      const once = await harness.addMember({ receive: ackAll });
      await harness.publish(harness.message({ id: "1" }));
      await once.waitForDeliveries(1);
      await once.close();
      await harness.publish(harness.message({ id: "2" }));
      const again = await harness.addMember({ receive: ackAll });
      await again.waitForDeliveries(1);
      deepStrictEqual(again.names, ["2"]);
    },
  },
  "deliveries of a crashed member go to the others, in order, and nothing is lost": {
    needs: ["ordersByKey", "abandon"],
    run: async (harness) => {
      const crashing = await harness.openAnother();
      const crashed = await harness.addMember({ transport: crashing, prefetch: 4 });
      for (const round of createRounds(harness, ["a", "b"], 5)) await harness.publish(...round);
      await crashed.waitForDeliveries(1);
      harness.abandon(crashing);
      const successor = await harness.addMember({ receive: ackAll });
      await successor.waitForDeliveries(10);
      for (const key of ["a", "b"]) deepStrictEqual(filterKey(successor.names, key), expectedOrder(key, 5));
    },
  },
  "deliveries of a crashed member do not count as attempts, and earlier failures still count": {
    needs: ["delaysRedelivery", "abandon"],
    run: async (harness) => {
      const crashing = await harness.openAnother();
      const crashed = await harness.addMember({ transport: crashing, prefetch: 4 });
      await harness.publish(harness.message({ id: "fresh" }), harness.message({ id: "failed" }));
      const first = await crashed.waitForDeliveries(2);
      await first
        .find((delivery) => harness.readName(delivery) === "failed")
        ?.retry({ ...FAILED_RETRY, delayMs: 20 });
      strictEqual((await crashed.waitForDeliveries(3))[2]?.attempt, 2);
      harness.abandon(crashing);
      const successor = await harness.addMember({ receive: ackAll });
      const left = await successor.waitForDeliveries(2);
      const attempts = left.map((delivery) => [harness.readName(delivery), delivery.attempt] as const);
      deepStrictEqual(Object.fromEntries(attempts), { fresh: 1, failed: 2 });
    },
  },
  "groups of two services with equal names each get a copy": {
    run: async (harness) => {
      const shop = await harness.addMember({ service: "shop", receive: ackAll });
      const books = await harness.addMember({ service: "books", receive: ackAll });
      await harness.publish(...expectedOrder("m", 5).map((id) => harness.message({ id })));
      await Promise.all([shop.waitForDeliveries(5), books.waitForDeliveries(5)]);
      await sleep(QUIET_MS);
      for (const { names } of [shop, books]) deepStrictEqual(names.toSorted(), expectedOrder("m", 5));
    },
  },
  "commands arrive in order, each at one member of the group": {
    needs: ["ordersByKey"],
    run: async (harness) => {
      const topic = `commands.${harness.topic}`;
      const all: string[] = [];
      for (const transport of [harness.transport, await harness.openAnother()]) {
        await harness.addMember({
          topic,
          kind: "command",
          transport,
          receive: (delivery) => all.push(harness.readName(delivery)) && delivery.ack(),
        });
      }
      for (const id of expectedOrder("c", 9)) {
        await harness.publish(harness.message({ id, topic, kind: "command", key: "k", target: "exercise" }));
      }
      await harness.waitUntil(() => all.length >= 9);
      await sleep(QUIET_MS);
      deepStrictEqual(all, expectedOrder("c", 9));
    },
  },
};

/** Cases about retries: their delay, the counted attempts, and the order of a key. */
export const retryCases: ExerciseCases = {
  "a retry is delivered after its delay as the next attempt, before later messages of its key": {
    needs: ["ordersByKey", "ordersRetries"],
    run: async (harness) => {
      const member = await harness.addMember({ prefetch: 1 });
      await harness.publish(...expectedOrder("a", 3).map((id) => harness.message({ id, key: "a" })));
      const [failed] = await member.waitForDeliveries(1);
      // From before it is said: the broker may take its time to confirm, and the delay runs meanwhile.
      const failedAt = systemClock.monotonicMs();
      await failed?.retry({ ...FAILED_RETRY, delayMs: 2_500 });
      await harness.publish(harness.message({ id: "b0", key: "b" }));
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
  "a retry without a key is delivered after its delay as the next attempt, and blocks nothing": {
    needs: ["delaysRedelivery"],
    run: async (harness) => {
      const member = await harness.addMember({ prefetch: 1 });
      await harness.publish(harness.message({ id: "late" }));
      const [failed] = await member.waitForDeliveries(1);
      // From before it is said: the broker may take its time to confirm, and the delay runs meanwhile.
      const failedAt = systemClock.monotonicMs();
      await failed?.retry({ ...FAILED_RETRY, delayMs: 2_500 });
      await harness.publish(harness.message({ id: "next" }));
      for (let n = 2; n <= 3; n++) await (await member.waitForDeliveries(n))[n - 1]?.ack();
      ok(systemClock.monotonicMs() - failedAt > 2_450, "it came back too early");
      deepStrictEqual(member.names, ["late", "next", "late"]);
      strictEqual(member.received[2]?.attempt, 2);
    },
  },
  "a retry with `countsAsAttempt: false` is not counted": {
    run: async (harness) => {
      const member = await harness.addMember();
      await harness.publish(harness.message());
      await (
        await member.waitForDeliveries(1)
      )[0]?.retry({ countsAsAttempt: false, error: "not the message's fault", delayMs: 0 });
      const [, again] = await member.waitForDeliveries(2);
      strictEqual(again?.attempt, 1);
      await again.ack();
    },
  },
  "when a message is retried and later ones are released, all are delivered again in order": {
    needs: ["ordersByKey", "ordersRetries"],
    run: async (harness) => {
      const member = await harness.addMember({ prefetch: 10 });
      await harness.publish(...expectedOrder("a", 3).map((id) => harness.message({ id, key: "a" })));
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
  "a delivery in flight can still be retried after pause, and the attempt counts": {
    run: async (harness) => {
      const member = await harness.addMember({ prefetch: 1 });
      await harness.publish(harness.message({ id: "1", key: "k" }));
      const [delivery] = await member.waitForDeliveries(1);
      await member.consumption?.pause();
      await delivery?.retry({ ...FAILED_RETRY, delayMs: 0 });
      await member.close();
      const next = await harness.addMember({ receive: (again) => again.ack() });
      strictEqual((await next.waitForDeliveries(1))[0]?.attempt, 2);
    },
  },
  "a message that always fails is redelivered with increasing attempts, and blocks nothing": {
    needs: ["delaysRedelivery"],
    run: async (harness) => {
      const attempts: number[] = [];
      const member = await harness.addMember({
        prefetch: 2,
        receive: (delivery) => {
          if (harness.readName(delivery) !== "poison") return delivery.ack();
          attempts.push(delivery.attempt);
          return attempts.length < 4 ? delivery.retry({ ...FAILED_RETRY, delayMs: 30 }) : delivery.ack();
        },
      });
      await harness.publish(
        harness.message({ id: "poison" }),
        ...expectedOrder("m", 9).map((id) => harness.message({ id })),
      );
      await member.waitForDeliveries(13);
      deepStrictEqual(attempts, [1, 2, 3, 4]);
      deepStrictEqual(member.names.filter((name) => name !== "poison").toSorted(), expectedOrder("m", 9));
    },
  },
  "a group without order gets every message without an order key, and its retries are delivered": {
    needs: ["delaysRedelivery"],
    run: async (harness) => {
      const member = await harness.addMember({
        ordered: false,
        receive: (delivery) => {
          const fails = harness.readName(delivery) === "a0" && delivery.attempt === 1;
          return fails ? delivery.retry({ ...FAILED_RETRY, delayMs: 50 }) : delivery.ack();
        },
      });
      await harness.publish(...expectedOrder("a", 8).map((id) => harness.message({ id, key: "a" })));
      const all = await member.waitForDeliveries(9);
      deepStrictEqual(member.names.toSorted(), ["a0", ...expectedOrder("a", 8)]);
      deepStrictEqual(new Set(all.map(({ orderKey }) => orderKey)), new Set([null]));
      const again = all.filter((delivery) => harness.readName(delivery) === "a0");
      deepStrictEqual(
        again.map(({ attempt }) => attempt),
        [1, 2],
      );
    },
  },
};
