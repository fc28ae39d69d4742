import { expect, test } from "vitest";
import { judgeLife } from "./explain-message.ts";
import type { DeadLetterRow, MessageLife, MovingRow } from "./message-life.ts";

const row: MovingRow = {
  consumer: null,
  lane: 7,
  attempts: 0,
  maxAttempts: 10,
  lastError: null,
  dueAt: "2026-01-01T00:00:00.000Z",
  isDue: true,
  isHeld: false,
  isOptimistic: false,
  owner: "worker-1",
  ahead: null,
};

const letter: DeadLetterRow = {
  id: "5",
  origin: "consumer",
  consumer: "billing",
  reason: "exhausted",
  attempts: 6,
  errorType: "TypeError",
  errorMessage: "no price",
  failedAt: "2026-01-01T00:05:00.000Z",
  closedAt: null,
  closedAs: null,
};

const ahead = {
  messageId: "m0",
  attempts: 3,
  lastError: "timeout",
  dueAt: "2026-01-01T00:01:00.000Z",
  isHeld: false,
};

function life(given: Partial<Omit<MessageLife, "message">> & { scheduledFor?: string } = {}): MessageLife {
  const { scheduledFor = null, ...rest } = given;
  const message: MessageLife["message"] = {
    id: "m1",
    kind: "event",
    type: "order.placed",
    schemaVersion: 1,
    topic: "orders",
    key: "o1",
    source: "shop",
    priority: 5,
    sagaId: null,
    correlationId: "m1",
    causationId: null,
    traceId: "t",
    bytes: 2,
    isClaimChecked: false,
    isEncrypted: false,
    writtenAt: "2026-01-01T00:00:00.000Z",
    expiresAt: null,
    scheduledFor,
    lane: 7,
  };
  const none = {
    outbox: [],
    sent: [],
    deliveries: [],
    subscribers: [],
    hasSubscriptions: false,
    handled: [],
    deadLetters: [],
    saga: null,
  };
  return { ...none, actions: [], ...rest, message };
}

test.each<[string, MessageLife, string, RegExp, RegExp]>([
  ["for later", life({ scheduledFor: "2030-01-01T00:00:00.000Z" }), "scheduled", /2030/, /enters the outbox/],
  ["due and owned", life({ outbox: [row] }), "waiting", /it is due/, /worker-1 owns its lane/],
  [
    "due and not owned",
    life({ outbox: [{ ...row, owner: null }] }),
    "waiting",
    /no running worker owns lane 7/,
    /sagabox worker/,
  ],
  [
    "sent by its writer",
    life({ outbox: [{ ...row, isOptimistic: true }] }),
    "waiting",
    /process that wrote it/,
    /relay sends it/,
  ],
  [
    "failed",
    life({ outbox: [{ ...row, isDue: false, attempts: 2, lastError: "refused" }] }),
    "retrying",
    /attempt 2 failed: refused/,
    /Attempt 3 of 10 is due at 2026/,
  ],
  [
    "behind another",
    life({ outbox: [{ ...row, ahead }] }),
    "held back",
    /m0 of the same key goes first and failed 3 times: timeout/,
    /sagabox explain m0/,
  ],
  [
    "behind a dead head",
    life({ outbox: [{ ...row, ahead: { ...ahead, dueAt: null, isHeld: true } }] }),
    "held back",
    /died in front of it/,
    /when a person decides/,
  ],
  [
    "a dead head",
    life({
      outbox: [{ ...row, isHeld: true, dueAt: null }],
      deadLetters: [{ ...letter, origin: "outbox", consumer: null }],
    }),
    "dead",
    /exhausted: no price/,
    /dead letter 5/,
  ],
  [
    "dead in the outbox",
    life({ deadLetters: [{ ...letter, origin: "outbox", consumer: null }] }),
    "dead",
    /exhausted after 6 attempts/,
    /replay dead letter 5/,
  ],
  [
    "sent",
    life({ sent: [{ relay: "worker-1", at: "2026-01-01T00:00:01.000Z" }] }),
    "sent",
    /confirmed it to worker-1/,
    /Nothing more/,
  ],
  [
    "discarded",
    life({
      deadLetters: [{ ...letter, origin: "outbox", consumer: null, closedAt: "x", closedAs: "discarded" }],
    }),
    "dead",
    /discarded/,
    /Nothing/,
  ],
])("G: a message that is %s says so first", (_, given, state, why, next) => {
  const [first] = judgeLife(given);
  expect(first).toMatchObject({ where: "outbox", state });
  expect(first?.why).toMatch(why);
  expect(first?.next).toMatch(next);
});

test("each consumer has a standing of its own: on its way, dead, handled, and those that never had it", () => {
  const standings = judgeLife(
    life({
      sent: [{ relay: "w", at: "2026-01-01T00:00:01.000Z" }],
      deliveries: [{ ...row, consumer: "stock", isDue: false, attempts: 1, lastError: "busy" }],
      deadLetters: [letter, { ...letter, id: "4", consumer: "mail", closedAt: "x", closedAs: "replayed" }],
      handled: [
        {
          consumer: "mail",
          consumedAt: "2026-01-01T00:00:02.000Z",
          durationMs: 3,
          effect: true,
          effectOf: null,
          undoneBy: "m9",
        },
        {
          consumer: "billing",
          consumedAt: "2026-01-01T00:00:02.000Z",
          durationMs: 3,
          effect: true,
          effectOf: null,
          undoneBy: null,
        },
      ],
      subscribers: ["billing", "late", "mail", "stock"].map((name) => ({
        name,
        since: name === "late" ? "2026-01-02T00:00:00.000Z" : "2025-01-01T00:00:00.000Z",
      })),
    }),
  );
  expect(standings.map(({ where, state }) => `${where}: ${state}`)).toEqual([
    "outbox: sent",
    "consumer stock: retrying",
    "consumer billing: dead",
    "consumer mail: handled",
    "consumer late: not handled",
  ]);
  expect(standings[3]?.why).toContain("undone by m9");
  expect(standings[4]?.why).toContain("after the message was written");
});

test("a consumer that was there and has no trace of a message may have no handler for its type", () => {
  const subscribers = [{ name: "billing", since: "2025-01-01T00:00:00.000Z" }];
  const [, silent] = judgeLife(life({ hasSubscriptions: true, subscribers }));
  expect(silent).toMatchObject({ where: "consumer billing", state: "not handled" });
  expect(silent?.next).toContain(`a handler for ${life().message.type}`);
});

test("a message that was sent and that nobody wanted says so, where PostgreSQL carries the messages", () => {
  const unwanted = judgeLife(life({ hasSubscriptions: true }));
  expect(unwanted.map(({ where, state }) => [where, state])).toEqual([
    ["outbox", "sent"],
    ["consumers", "not handled"],
  ]);
  expect(unwanted[1]?.why).toBe("no consumer has subscribed to topic orders in this database");
  const elsewhere = judgeLife(life());
  expect(elsewhere).toHaveLength(1);
  expect(elsewhere[0]?.next).toContain("the broker knows the consumers");
  expect(judgeLife(life({ hasSubscriptions: true, outbox: [row] }))).toHaveLength(1);
  expect(judgeLife(life({ hasSubscriptions: true, deadLetters: [letter] }))).toHaveLength(2);
});
