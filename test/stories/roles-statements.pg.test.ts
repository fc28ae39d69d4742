import type pg from "pg";
import { expect, test, vi } from "vitest";
import { adminStatements } from "../../src/admin/sagas/statements.ts";
import { deadLetterAdminStatements } from "../../src/admin/dead-letters/statements.ts";
import { consumerStatements } from "../../src/admin/consumers/statements.ts";
import { explainStatements, findStatements } from "../../src/admin/explain/statements.ts";
import { outboxStatements } from "../../src/admin/outbox/statements.ts";
import { overviewStatements } from "../../src/admin/overview/statements.ts";
import type { Extra, RoleName } from "../../src/admin/index.ts";
import { auditStatements } from "../../src/audit/statements.ts";
import { chunkStatements, ledgerStatements } from "../../src/claim-check/statements.ts";
import { deadLetterStatements } from "../../src/dead-letter/statements.ts";
import { flowStatements } from "../../src/flow/statements.ts";
import { inboxStatements } from "../../src/inbox/statements.ts";
import { ownershipStatements, readStatements } from "../../src/lanes/statements.ts";
import { guardedStatements, settleStatements, writeStatements } from "../../src/outbox/statements.ts";
import { depthStatements, republishStatements } from "../../src/outbox/upkeep/statements.ts";
import { privacyStatements } from "../../src/privacy/statements.ts";
import { requestStatements } from "../../src/requests/statements.ts";
import { sagaStatements } from "../../src/saga/statements.ts";
import type { Statement } from "../../src/storage/index.ts";
import {
  deliveryStatements,
  hopStatements,
  queueStatements,
} from "../../src/transports/postgres/statements.ts";
import { subscribeStatements } from "../../src/transports/postgres/subscribe-statements.ts";
import { rolesHarness } from "../support/roles-harness.ts";

vi.setConfig({ testTimeout: 90_000 });

const schema = '"sagabox"';

function all(of: object, without: readonly string[] = []): Statement[] {
  return Object.entries(of).flatMap(([name, one]) =>
    !without.includes(name) && typeof one === "object" && one !== null && "preparedName" in one
      ? [one as Statement]
      : [],
  );
}

function only(of: object, names: readonly string[]): Statement[] {
  return all(Object.fromEntries(Object.entries(of).filter(([name]) => names.includes(name))));
}

const write = writeStatements(schema);
const guarded = guardedStatements(schema);
const settle = settleStatements(schema);
const deadLetters = deadLetterStatements(schema);
const tools = deadLetterAdminStatements(schema);
const privacy = privacyStatements(schema);
const sagas = sagaStatements(schema);
const inbox = inboxStatements(schema);
const admin = adminStatements(schema);
const outbox = outboxStatements(schema);
const consumers = consumerStatements(schema);
const openFind = findStatements(schema);
const hiddenFind = findStatements(schema, false);
const hiddenFindBy = ["correlationId", "traceId", "sagaId"] as const;
const leased = ["publishLeased", "publishLeasedOne", "publishLeasedUsual"];
const ofLeased = ["sentLeased", "committedLeased", "releaseLeased"];
const relayed = ["moveDue", "nextDue"];
const upkeepOfSagas = ["forget", "forgetUnclaimed"];

/** Who runs which statements. What is left out, the owner runs. */
const runs: readonly (readonly [RoleName, Extra[], Statement[]])[] = [
  ["writer", [], [...all(write, [...leased, ...relayed]), ...all(guarded, leased)]],
  ["writer", [], [...all(ledgerStatements(schema)), chunkStatements(schema).write]],
  ["writer", [], only(privacy, ["keyOf", "addKey", "keys"])],
  [
    "writer",
    ["optimistic"],
    [
      ...only(write, leased),
      ...only(guarded, leased),
      ...only(settle, ofLeased),
      hopStatements(schema).settleLeased,
    ],
  ],
  ["writer", ["overflow"], [depthStatements(schema).depths]],
  ["relay", [], [...all(settle, ofLeased), hopStatements(schema).settle, ...only(write, relayed)]],
  ["relay", [], [...all(ownershipStatements(schema)), ...all(readStatements(schema, "outbox"))]],
  ["relay", [], all(depthStatements(schema))],
  ["consumer", [], [...all(queueStatements(schema)), ...all(deliveryStatements(schema))]],
  ["consumer", [], all(subscribeStatements(schema), ["mark", "backToMark", "retire"])],
  ["consumer", [], [...all(ownershipStatements(schema)), ...all(readStatements(schema, "queue"))]],
  ["consumer", [], [...all(inbox, ["forget", "forgetSuspects"]), deadLetters.bury]],
  ["consumer", [], [requestStatements(schema).find, ...all(flowStatements(schema), ["forget"])]],
  ["consumer", [], [chunkStatements(schema).read, ...only(privacy, ["keyOf", "keys"])]],
  ["saga", [], all(sagas, upkeepOfSagas)],
  ["operator", [], [...all(deadLetters, ["bury", "forget"]), ...all(explainStatements(schema))]],
  [
    "operator",
    [],
    [...all(tools), deadLetters.list(["fingerprint", "text", "open"]), tools.groups(["consumer", "since"])],
  ],
  ["operator", [], [deadLetters.listInOrder(["type"]), tools.held(["key"]), tools.discard(["topic"])]],
  [
    "operator",
    [],
    [...all(admin), admin.listSagas(["type", "step"]), ...only(sagas, ["load", "post", "ignore"])],
  ],
  ["operator", [], [...all(republishStatements(schema)), inbox.stats]],
  ["operator", [], all(auditStatements(schema), ["seal"])],
  [
    "viewer",
    [],
    [
      ...all(overviewStatements(schema)),
      ...all(outbox, ["retryNow", "scheduledByKey"]),
      outbox.list(false),
      outbox.scheduled(false),
    ],
  ],
  ["viewer", [], [...all(consumers, ["reach"]), consumers.list(false), inbox.stats]],
  ["viewer", [], all(explainStatements(schema, false))],
  ["viewer", [], [...all(hiddenFind), ...hiddenFindBy.map((by) => hiddenFind.messages(by))]],
  ["operator", [], [...all(openFind), openFind.messages("key"), openFind.messages("traceId")]],
  [
    "operator",
    [],
    [
      ...only(outbox, ["retryNow", "scheduledByKey"]),
      outbox.list(true),
      outbox.scheduled(true),
      consumers.list(true),
    ],
  ],
  ["operator", [], only(subscribeStatements(schema), ["retire", "lockSubscriptions", "patience"])],
  ["privacy", [], [...all(privacy), auditStatements(schema).write]],
];

/** Planned and opened, which is where rights are checked; nothing is carried out. */
async function refusedTo(pool: pg.Pool, statements: readonly Statement[]): Promise<string[]> {
  const refused: string[] = [];
  for (const { name, text } of statements) {
    const values = Array.from(new Set(text.match(/\$\d+/g)), () => null);
    await pool.query(`explain ${text}`, values).catch((error: unknown) => {
      const { code, message } = error as { code: string; message: string };
      if (code !== "42501") throw new Error(`${name}: ${message}`, { cause: error });
      refused.push(`${name}: ${message}`);
    });
  }
  return refused;
}

test("G10: every statement is allowed to the role that runs it", async () => {
  const harnesses = new Map<string, Awaited<ReturnType<typeof rolesHarness>>>();
  for (const [role, extras, statements] of runs) {
    const harness = harnesses.get(extras.join()) ?? (await rolesHarness(extras));
    harnesses.set(extras.join(), harness);
    expect(statements.length).toBeGreaterThan(0);
    expect(await refusedTo(await harness.as(role), statements), role).toEqual([]);
  }
  expect(runs.flatMap(([, , statements]) => statements).length).toBeGreaterThan(120);
});

test("SEC-35: statements of other roles are refused to a writer and to a viewer", async () => {
  const harness = await rolesHarness();
  const others = [
    settle.sent,
    inbox.recall,
    deadLetters.show,
    sagas.load,
    privacy.destroyKeys,
    write.publishLeased,
  ];
  for (const role of ["writer", "viewer"] as const) {
    expect(await refusedTo(await harness.as(role), others), role).toHaveLength(others.length);
  }
});
