import { deepStrictEqual, ok, rejects, strictEqual } from "node:assert/strict";
import type { Message } from "../message/index.ts";
import { sleep, systemClock } from "../runtime/index.ts";
import { type Capabilities, type DeadLetterNote, type Delivery, toWire } from "../transport/index.ts";
import {
  ackAll,
  createRounds,
  type ExerciseCase,
  type ExerciseCases,
  ExerciseHarness,
  type ExerciseMember,
  expectedOrder,
  FAILED_RETRY,
  filterKey,
  type Hook,
  QUIET_MS,
  type TransportUnderTest,
} from "./exercise-harness.ts";
import { flowCases, groupCases, lagCases, retryCases } from "./exercise-consuming.ts";
import { publishingCases } from "./exercise-publishing.ts";

/** Cases about delivery in order and once, and about settling. */
const deliveryCases: ExerciseCases = {
  "every group gets its own copy": {
    run: async (harness) => {
      const members = [await harness.addMember({ group: "a" }), await harness.addMember({ group: "b" })];
      await harness.publish(harness.message({ id: "1" }), harness.message({ id: "2" }));
      for (const member of members) {
        for (const delivery of await member.waitForDeliveries(2)) await delivery.ack();
        deepStrictEqual(member.names.toSorted(), ["1", "2"]);
      }
    },
  },
  "messages of one key arrive in the order they were published": {
    needs: ["ordersByKey"],
    run: async (harness) => {
      const keys = ["a", "b", "c", "d", "e"];
      const member = await harness.addMember({ prefetch: 4, receive: ackAll });
      for (const round of createRounds(harness, keys, 12)) await harness.publish(...round);
      await member.waitForDeliveries(60);
      for (const key of keys) deepStrictEqual(filterKey(member.names, key), expectedOrder(key, 12));
    },
  },
  "the order key is equal for equal keys, differs between keys, and is null without a key": {
    needs: ["ordersByKey"],
    run: async (harness) => {
      const member = await harness.addMember({ receive: ackAll });
      const keyed = ["a", "a", "b"].map((key, n) => harness.message({ id: String(n), key }));
      await harness.publish(...keyed, harness.message({ id: "3" }));
      await member.waitForDeliveries(4);
      const order = new Map(
        member.received.map((delivery) => [harness.readName(delivery), delivery.orderKey]),
      );
      ok(order.get("0") !== null && order.get("0") === order.get("1"));
      ok(order.get("2") !== null && order.get("2") !== order.get("0"));
      strictEqual(order.get("3"), null);
    },
  },
  "competing members share the messages of a group, each delivered to one, in order per key": {
    needs: ["ordersByKey"],
    run: async (harness) => {
      const all: string[] = [];
      const receive = (delivery: Delivery): unknown => all.push(harness.readName(delivery)) && delivery.ack();
      const members: ExerciseMember[] = [];
      for (let n = 0; n < 3; n++) {
        members.push(
          await harness.addMember({
            transport: n === 0 ? harness.transport : await harness.openAnother(),
            receive,
          }),
        );
      }
      const keys = expectedOrder("k", 20).map((key) => `${key}-`);
      for (const round of createRounds(harness, keys, 6)) await harness.publish(...round);
      await harness.waitUntil(() => all.length >= 120);
      await sleep(QUIET_MS);
      strictEqual(all.length, 120);
      for (const key of keys) deepStrictEqual(filterKey(all, key), expectedOrder(key, 6));
    },
  },
  "a released delivery is delivered again without counting an attempt": {
    run: async (harness) => {
      const member = await harness.addMember();
      await harness.publish(harness.message({ id: "1" }));
      await (await member.waitForDeliveries(1))[0]?.release();
      const [, again] = await member.waitForDeliveries(2);
      strictEqual(again?.attempt, 1);
      await again.ack();
    },
  },
  "a delivery is settled once; later calls change nothing": {
    run: async (harness) => {
      const member = await harness.addMember();
      await harness.publish(harness.message({ id: "1" }));
      const [delivery] = await member.waitForDeliveries(1);
      await delivery?.ack();
      await delivery?.retry({ ...FAILED_RETRY, delayMs: 0 });
      await delivery?.release();
      await delivery?.ack();
      await sleep(QUIET_MS);
      deepStrictEqual(member.names, ["1"]);
    },
  },
  "a paused member receives nothing new and can still settle deliveries": {
    run: async (harness) => {
      const member = await harness.addMember({ prefetch: 1 });
      await harness.publish(harness.message({ id: "1", key: "k" }), harness.message({ id: "2", key: "k" }));
      const [first] = await member.waitForDeliveries(1);
      await member.consumption?.pause();
      await first?.ack();
      await sleep(QUIET_MS);
      deepStrictEqual(member.names, ["1"]);
      await member.close();
      const next = await harness.addMember();
      await (await next.waitForDeliveries(1))[0]?.ack();
      deepStrictEqual(next.names, ["2"]);
    },
  },
  "closing returns unsettled deliveries in order, without counting an attempt": {
    run: async (harness) => {
      const member = await harness.addMember({ prefetch: 10 });
      await harness.publish(...expectedOrder("a", 3).map((id) => harness.message({ id, key: "a" })));
      await (await member.waitForDeliveries(3))[0]?.ack();
      await member.close();
      const next = await harness.addMember({ receive: ackAll });
      await next.waitForDeliveries(2);
      deepStrictEqual(next.names, ["a1", "a2"]);
      deepStrictEqual(
        next.received.map(({ attempt }) => attempt),
        [1, 1],
      );
    },
  },
};

const NOTE: DeadLetterNote = {
  error_type: "TypeError",
  error_message: 'no "total" in it: 東京\nsecond line',
  stack_trace: "TypeError: no total\n    at bill (bill.ts:7:3)",
  retry_count: "4",
  failed_at: "2026-01-02T03:04:05.678Z",
  source_topic: "events.order.placed",
  consumer_group: "billing",
  original_timestamp: "2026-01-02T03:04:05.123456Z",
};

const INVALID_UTF8 = Uint8Array.of(0xff, 0x00, 0xfe, 0x7b);

/** Cases about bytes that are not a message, and about dead letters. */
const foreignMessageCases: ExerciseCases = {
  "bytes that are not a message are delivered with a flaw, can be settled, and block nothing": {
    needs: ["putForeign"],
    run: async (harness) => {
      const member = await harness.addMember();
      for (const body of [INVALID_UTF8, new TextEncoder().encode('{"half":'), new Uint8Array()]) {
        await harness.putForeign(body);
      }
      await harness.publish(harness.message({ id: "ours" }));
      const all = await member.waitForDeliveries(4);
      const foreign = all.filter(({ flaw }) => flaw !== undefined);
      strictEqual(foreign.length, 3);
      ok(foreign.every(({ flaw }) => flaw instanceof Error));
      strictEqual(new Set(foreign.map(({ message }) => message.id)).size, 3);
      ok(foreign.every(({ message }) => message.topic === harness.topic));
      for (const delivery of all) await delivery.ack();
      await member.close();
      const next = await harness.addMember({ receive: ackAll });
      await sleep(QUIET_MS);
      deepStrictEqual(next.names, []);
    },
  },
  "a dead letter keeps its body and headers, gets the note as headers, and is not delivered again": {
    needs: ["deadLetters"],
    run: async (harness) => {
      const member = await harness.addMember();
      const headers = { ends: "  x  ", foreign: "Grüße, 東京 😀", "x-tenant": "acme" };
      const data = JSON.stringify({ text: "語 😀 \u2028" });
      const dead = harness.message({ id: "dead", key: "k", data, headers });
      await harness.publish(dead);
      const [delivery] = await member.waitForDeliveries(1);
      ok(delivery?.deadLetter !== undefined, "the delivery has no deadLetter()");
      await delivery.deadLetter(NOTE);
      await delivery.ack();
      await harness.publish(harness.message({ id: "next", key: "k" }));
      await (await member.waitForDeliveries(2))[1]?.ack();
      const [copy] = await harness.deadLetters(1);
      strictEqual(new TextDecoder().decode(copy?.body), toWire(dead).body.toString());
      const found = { ...copy?.headers };
      const wanted = { ...headers, ...NOTE };
      deepStrictEqual(Object.fromEntries(Object.keys(wanted).map((name) => [name, found[name]])), wanted);
      deepStrictEqual(member.names, ["dead", "next"]);
    },
  },
  "bytes that are not a message can be dead-lettered unchanged": {
    needs: ["putForeign", "deadLetters"],
    run: async (harness) => {
      const member = await harness.addMember();
      await harness.putForeign(INVALID_UTF8);
      const [delivery] = await member.waitForDeliveries(1);
      await delivery?.deadLetter?.(NOTE);
      await delivery?.ack();
      const [copy] = await harness.deadLetters(1);
      deepStrictEqual([...(copy?.body ?? [])], [...INVALID_UTF8]);
      strictEqual(copy?.headers["error_type"], NOTE.error_type);
    },
  },
};

/** Some brokers know times only in seconds, so messages before a start time are at least this much older. */
const MIN_TIME_GAP_MS = 1_100;

const streamTopic = (harness: ExerciseHarness): string => `streams.${harness.topic}`;

const streamMessage = (harness: ExerciseHarness, id: string): Message =>
  harness.message({
    id,
    key: "k",
    topic: streamTopic(harness),
    kind: "stream",
    writtenAt: new Date(systemClock.wallMs()).toISOString(),
  });

/** Cases about streams, which keep messages for later reading. */
const streamCases: ExerciseCases = {
  "each group reads a stream in order from its beginning, and continues where it stopped": {
    needs: ["ordersByKey"],
    run: async (harness) => {
      const stream = { topic: streamTopic(harness), kind: "stream", from: "beginning" } as const;
      await harness.publish(...expectedOrder("s", 3).map((id) => streamMessage(harness, id)));
      const first = await harness.addMember({ ...stream, group: "first", receive: ackAll });
      await first.waitForDeliveries(3);
      await first.close();
      await harness.publish(streamMessage(harness, "s3"));
      const second = await harness.addMember({ ...stream, group: "second", receive: ackAll });
      const again = await harness.addMember({ ...stream, group: "first", receive: ackAll });
      await Promise.all([second.waitForDeliveries(4), again.waitForDeliveries(1)]);
      await sleep(QUIET_MS);
      deepStrictEqual([second.names, again.names], [expectedOrder("s", 4), ["s3"]]);
    },
  },
  "each new group reads a stream from a time on, and continues where it stopped": {
    needs: ["ordersByKey", "replaysFromTime"],
    run: async (harness) => {
      await harness.publish(...expectedOrder("old", 3).map((id) => streamMessage(harness, id)));
      await sleep(MIN_TIME_GAP_MS);
      const from = { time: new Date(systemClock.wallMs()) };
      const stream = { topic: streamTopic(harness), kind: "stream", from } as const;
      // For the first group, no message is as late as its start time.
      const early = await harness.addMember({ ...stream, group: "early", receive: ackAll });
      await harness.publish(...expectedOrder("s", 3).map((id) => streamMessage(harness, id)));
      const once = await harness.addMember({ ...stream, group: "late", receive: ackAll });
      await Promise.all([early.waitForDeliveries(3), once.waitForDeliveries(3)]);
      await once.close();
      await harness.publish(streamMessage(harness, "s3"));
      const again = await harness.addMember({ ...stream, group: "late", receive: ackAll });
      await Promise.all([early.waitForDeliveries(4), again.waitForDeliveries(1)]);
      await sleep(QUIET_MS);
      deepStrictEqual(
        [early.names, once.names, again.names],
        [expectedOrder("s", 4), expectedOrder("s", 3), ["s3"]],
      );
    },
  },
  "a start time is refused by a transport that cannot start there": {
    unless: ["replays"],
    run: async (harness) => {
      const from = { time: new Date(systemClock.wallMs()) };
      await rejects(harness.addMember({ kind: "event", from }), { code: "TRANSPORT_CANNOT_REPLAY" });
    },
  },
};

export type { BrokerDeadLetter, Hook, TransportUnderTest } from "./exercise-harness.ts";

const exerciseCases: ExerciseCases = {
  ...publishingCases,
  ...deliveryCases,
  ...retryCases,
  ...groupCases,
  ...streamCases,
  ...flowCases,
  ...lagCases,
  ...foreignMessageCases,
};

/** A larger `maxBytes` is not tested, because it would take too much memory and time. */
const MAX_TRIED_BYTES = 8 * 1_048_576;

const missingHookReasons: Readonly<Record<Hook, string>> = {
  abandon: "a process of the transport cannot crash alone",
  cutConnections: "the transport has no connection that could break",
  putForeign: "other software cannot publish to the transport",
  deadLetters: "the transport has no dead letters of its own",
};

/** The test runner to register cases with: `{ test }` of vitest or node:test, or `{ test: it }` of Mocha. */
export interface TestRunner {
  readonly test: (name: string, run: () => Promise<void>) => void;
}

export interface ExerciseOptions {
  /** The capabilities of the transport. Cases that need others are skipped. */
  readonly capabilities: Capabilities;
  /** The optional hooks that the test offers. Default none. */
  readonly offers?: readonly Hook[];
  /** Titles of cases to skip, each with the reason. Default none. */
  readonly skip?: Readonly<Record<string, string>>;
}

export interface SkippedCase {
  readonly name: string;
  readonly reason: string;
}

/**
 * The conformance suite of transports. It registers one test for each case that sagabox relies on, each with a new
 * transport. Returns the skipped cases with their reasons, so that a test can check them. Throws if `skip` names an
 * unknown case.
 */
export function exerciseTransport(
  runner: TestRunner,
  makeTransport: () => Promise<TransportUnderTest>,
  options: ExerciseOptions,
): readonly SkippedCase[] {
  assertKnown(Object.keys(options.skip ?? {}));
  const skipped: SkippedCase[] = [];
  for (const [name, exercise] of Object.entries(exerciseCases)) {
    const reason = options.skip?.[name] ?? findSkipReason(exercise, options);
    if (reason !== undefined) skipped.push({ name, reason });
    else runner.test(name, () => runCase(exercise, makeTransport));
  }
  return skipped;
}

async function runCase(
  exercise: ExerciseCase,
  makeTransport: () => Promise<TransportUnderTest>,
): Promise<void> {
  const underTest = await makeTransport();
  try {
    await underTest.transport.open();
    await exercise.run(new ExerciseHarness(underTest));
  } finally {
    await underTest.close();
  }
}

function findSkipReason(exercise: ExerciseCase, options: ExerciseOptions): string | undefined {
  const claimed = exercise.unless?.find((claim) => options.capabilities[claim] !== false);
  if (claimed !== undefined) return `the transport supports ${claimed}`;
  for (const need of exercise.needs ?? []) {
    const reason =
      need in missingHookReasons
        ? findMissingHook(need as Hook, options)
        : findMissingCapability(need as Claim, options);
    if (reason !== undefined) return reason;
  }
  return undefined;
}

type Claim = keyof Capabilities;

function findMissingHook(hook: Hook, { offers }: ExerciseOptions): string | undefined {
  return offers?.includes(hook) === true ? undefined : missingHookReasons[hook];
}

function findMissingCapability(claim: Claim, { capabilities }: ExerciseOptions): string | undefined {
  if (capabilities[claim] === false) return `the transport does not support ${claim}`;
  if (claim !== "maxBytes" || capabilities.maxBytes <= MAX_TRIED_BYTES) return undefined;
  return `a message of ${capabilities.maxBytes} bytes is too large to test`;
}

function assertKnown(names: readonly string[]): void {
  const unknown = names.find((name) => !(name in exerciseCases));
  if (unknown !== undefined) throw new Error(`There is no case "${unknown}" to skip.`);
}
