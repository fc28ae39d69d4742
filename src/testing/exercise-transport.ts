import { deepStrictEqual, ok, rejects, strictEqual } from "node:assert/strict";
import type { Message } from "../message/index.ts";
import { sleep, systemClock } from "../runtime/index.ts";
import { type Capabilities, type DeadLetterNote, type Delivery, toWire } from "../transport/index.ts";
import {
  ackAll,
  createRounds,
  type ExerciseCase,
  type ExerciseCases,
  expectedOrder,
  FAILED_RETRY,
  filterKey,
  QUIET_MS,
} from "./exercise-case.ts";
import { flowCases } from "./exercise-flow.ts";
import { groupCases } from "./exercise-groups.ts";
import {
  ExerciseHarness,
  type ExerciseMember,
  type Hook,
  type TransportUnderTest,
} from "./exercise-harness.ts";
import { publishingCases } from "./exercise-publishing.ts";
import { retryCases } from "./exercise-retries.ts";

/** What is published arrives in order and once, and settling means what it says. */
const deliveryCases: ExerciseCases = {
  "every group gets a copy of its own": {
    run: async (stage) => {
      const members = [await stage.addMember({ group: "a" }), await stage.addMember({ group: "b" })];
      await stage.publish(stage.message({ id: "1" }), stage.message({ id: "2" }));
      for (const member of members) {
        for (const delivery of await member.waitForDeliveries(2)) await delivery.ack();
        deepStrictEqual(member.names.toSorted(), ["1", "2"]);
      }
    },
  },
  "messages of one key arrive in the order they were published": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const keys = ["a", "b", "c", "d", "e"];
      const member = await stage.addMember({ prefetch: 4, receive: ackAll });
      for (const round of createRounds(stage, keys, 12)) await stage.publish(...round);
      await member.waitForDeliveries(60);
      for (const key of keys) deepStrictEqual(filterKey(member.names, key), expectedOrder(key, 12));
    },
  },
  "the order key is the same for one key, differs between keys, and is missing without one": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const member = await stage.addMember({ receive: ackAll });
      const keyed = ["a", "a", "b"].map((key, n) => stage.message({ id: String(n), key }));
      await stage.publish(...keyed, stage.message({ id: "3" }));
      await member.waitForDeliveries(4);
      const order = new Map(member.received.map((delivery) => [stage.readName(delivery), delivery.orderKey]));
      ok(order.get("0") !== null && order.get("0") === order.get("1"));
      ok(order.get("2") !== null && order.get("2") !== order.get("0"));
      strictEqual(order.get("3"), null);
    },
  },
  "competing members share the messages of a group, each to one of them, in order per key": {
    needs: ["ordersByKey"],
    run: async (stage) => {
      const all: string[] = [];
      const receive = (delivery: Delivery): unknown => all.push(stage.readName(delivery)) && delivery.ack();
      const members: ExerciseMember[] = [];
      for (let n = 0; n < 3; n++) {
        members.push(
          await stage.addMember({
            transport: n === 0 ? stage.transport : await stage.openAnother(),
            receive,
          }),
        );
      }
      const keys = expectedOrder("k", 20).map((key) => `${key}-`);
      for (const round of createRounds(stage, keys, 6)) await stage.publish(...round);
      await stage.waitUntil(() => all.length >= 120);
      await sleep(QUIET_MS);
      strictEqual(all.length, 120);
      for (const key of keys) deepStrictEqual(filterKey(all, key), expectedOrder(key, 6));
    },
  },
  "a released delivery comes back unharmed": {
    run: async (stage) => {
      const member = await stage.addMember();
      await stage.publish(stage.message({ id: "1" }));
      await (await member.waitForDeliveries(1))[0]?.release();
      const [, again] = await member.waitForDeliveries(2);
      strictEqual(again?.attempt, 1);
      await again.ack();
    },
  },
  "a delivery is settled once; what is said later changes nothing": {
    run: async (stage) => {
      const member = await stage.addMember();
      await stage.publish(stage.message({ id: "1" }));
      const [delivery] = await member.waitForDeliveries(1);
      await delivery?.ack();
      await delivery?.retry({ ...FAILED_RETRY, delayMs: 0 });
      await delivery?.release();
      await delivery?.ack();
      await sleep(QUIET_MS);
      deepStrictEqual(member.names, ["1"]);
    },
  },
  "paused, it takes nothing new, and what is handed out may still be settled": {
    run: async (stage) => {
      const member = await stage.addMember({ prefetch: 1 });
      await stage.publish(stage.message({ id: "1", key: "k" }), stage.message({ id: "2", key: "k" }));
      const [first] = await member.waitForDeliveries(1);
      await member.consumption?.pause();
      await first?.ack();
      await sleep(QUIET_MS);
      deepStrictEqual(member.names, ["1"]);
      await member.close();
      const next = await stage.addMember();
      await (await next.waitForDeliveries(1))[0]?.ack();
      deepStrictEqual(next.names, ["2"]);
    },
  },
  "closing gives back what is unsettled, unharmed and in order": {
    run: async (stage) => {
      const member = await stage.addMember({ prefetch: 10 });
      await stage.publish(...expectedOrder("a", 3).map((id) => stage.message({ id, key: "a" })));
      await (await member.waitForDeliveries(3))[0]?.ack();
      await member.close();
      const next = await stage.addMember({ receive: ackAll });
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

/** Bytes that are no message, and messages that nobody can handle. */
const foreignMessageCases: ExerciseCases = {
  "bytes that are no message come with the reason, can be settled, and hold nobody up": {
    needs: ["putForeign"],
    run: async (stage) => {
      const member = await stage.addMember();
      for (const body of [INVALID_UTF8, new TextEncoder().encode('{"half":'), new Uint8Array()]) {
        await stage.putForeign(body);
      }
      await stage.publish(stage.message({ id: "ours" }));
      const all = await member.waitForDeliveries(4);
      const strangers = all.filter(({ flaw }) => flaw !== undefined);
      strictEqual(strangers.length, 3);
      ok(strangers.every(({ flaw }) => flaw instanceof Error));
      strictEqual(new Set(strangers.map(({ message }) => message.id)).size, 3);
      ok(strangers.every(({ message }) => message.topic === stage.topic));
      for (const delivery of all) await delivery.ack();
      await member.close();
      const next = await stage.addMember({ receive: ackAll });
      await sleep(QUIET_MS);
      deepStrictEqual(next.names, []);
    },
  },
  "a dead letter keeps its body and headers, has the note beside them, and does not come again": {
    needs: ["deadLetters"],
    run: async (stage) => {
      const member = await stage.addMember();
      const headers = { ends: "  x  ", foreign: "Grüße, 東京 😀", "x-tenant": "acme" };
      const data = JSON.stringify({ text: "語 😀 \u2028" });
      const dead = stage.message({ id: "dead", key: "k", data, headers });
      await stage.publish(dead);
      const [delivery] = await member.waitForDeliveries(1);
      ok(delivery?.deadLetter !== undefined, "the delivery has no deadLetter()");
      await delivery.deadLetter(NOTE);
      await delivery.ack();
      await stage.publish(stage.message({ id: "next", key: "k" }));
      await (await member.waitForDeliveries(2))[1]?.ack();
      const [copy] = await stage.deadLetters(1);
      strictEqual(new TextDecoder().decode(copy?.body), toWire(dead).body.toString());
      const found = { ...copy?.headers };
      const wanted = { ...headers, ...NOTE };
      deepStrictEqual(Object.fromEntries(Object.keys(wanted).map((name) => [name, found[name]])), wanted);
      deepStrictEqual(member.names, ["dead", "next"]);
    },
  },
  "bytes that are no message can be put among the dead letters, unchanged": {
    needs: ["putForeign", "deadLetters"],
    run: async (stage) => {
      const member = await stage.addMember();
      await stage.putForeign(INVALID_UTF8);
      const [delivery] = await member.waitForDeliveries(1);
      await delivery?.deadLetter?.(NOTE);
      await delivery?.ack();
      const [copy] = await stage.deadLetters(1);
      deepStrictEqual([...(copy?.body ?? [])], [...INVALID_UTF8]);
      strictEqual(copy?.headers["error_type"], NOTE.error_type);
    },
  },
};

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
const streamCases: ExerciseCases = {
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

export type { BrokerDeadLetter, Hook, TransportUnderTest } from "./exercise-harness.ts";

const exerciseCases: ExerciseCases = {
  ...publishingCases,
  ...deliveryCases,
  ...retryCases,
  ...groupCases,
  ...streamCases,
  ...flowCases,
  ...foreignMessageCases,
};

/** A larger claim is believed: what it takes to try it would be lost on everybody else. */
const MAX_TRIED_BYTES = 8 * 1_048_576;

const missingHookReasons: Readonly<Record<Hook, string>> = {
  abandon: "no process of it can die alone",
  cutConnections: "it has no connection that could break",
  putForeign: "nobody else can put anything there",
  deadLetters: "it has no dead letters of its own",
};

/** The little that is needed of a test runner: `{ test }` of vitest, `{ test: it }` of Mocha or node:test will do. */
export interface TestRunner {
  readonly test: (name: string, run: () => Promise<void>) => void;
}

export interface ExerciseOptions {
  /** What the transport claims; what it does not claim is not asked of it. */
  readonly capabilities: Capabilities;
  /** Which of the optional hooks its test comes with. Default none. */
  readonly offers?: readonly Hook[];
  /** Cases left out, each with the reason why. */
  readonly skip?: Readonly<Record<string, string>>;
}

export interface SkippedCase {
  readonly name: string;
  readonly reason: string;
}

/**
 * The conformance suite of transports: what sagabox relies on, case by case, each on a transport of its own. Returns
 * what was left out and why, so that a test can look at that too.
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
  const under = await makeTransport();
  try {
    await under.transport.open();
    await exercise.run(new ExerciseHarness(under));
  } finally {
    await under.close();
  }
}

function findSkipReason(exercise: ExerciseCase, options: ExerciseOptions): string | undefined {
  const claimed = exercise.unless?.find((claim) => options.capabilities[claim] !== false);
  if (claimed !== undefined) return `it claims ${claimed}`;
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
  if (capabilities[claim] === false) return `it does not claim ${claim}`;
  if (claim !== "maxBytes" || capabilities.maxBytes <= MAX_TRIED_BYTES) return undefined;
  return `a message of ${capabilities.maxBytes} bytes is too much to try`;
}

function assertKnown(names: readonly string[]): void {
  const unknown = names.find((name) => !(name in exerciseCases));
  if (unknown !== undefined) throw new Error(`There is no case "${unknown}" to leave out.`);
}
