import { deadLetterStatements } from "../../src/dead-letter/statements.ts";
import { ledgerStatements } from "../../src/claim-check/statements.ts";
import { inboxStatements, onceStatement } from "../../src/inbox/statements.ts";
import { probeStatements, readStatements } from "../../src/lanes/statements.ts";
import { listParams, messageColumns, singleParams, usualColumns } from "../../src/outbox/outgoing.ts";
import { guardedStatements, settleStatements, writeStatements } from "../../src/outbox/statements.ts";
import { historyStatements } from "../../src/outbox/upkeep/statements.ts";
import { privacyStatements } from "../../src/privacy/statements.ts";
import { requestStatements } from "../../src/requests/statements.ts";
import { sagaStatements } from "../../src/saga/statements.ts";
import { settlingPlans, steadyPlans, type Param, type Statement } from "../../src/storage/index.ts";
import {
  deliveryStatements,
  hopStatements,
  queueStatements,
} from "../../src/transports/postgres/statements.ts";
import { outgoing } from "../support/relays.ts";
import { GROUP, LANE, QUEUE_LANE } from "./fill.ts";

/** A statement that runs for messages, with parameters that name a few of the rows that `fillTables` writes. */
export interface PathStatement {
  readonly statement: Statement;
  readonly params: readonly Param[];
  /** The settings of the session that runs it; none where it runs in a session of the caller's pool. */
  readonly settings: Readonly<Record<string, string>>;
}

const SCHEMA = '"sagabox"';
const IDS = "{m-100,m-200,m-300}";
const SEQS = "{100,200,300}";
/** Replaced by where the row with seq 100 is in the outbox. */
export const PLACE_OF_100 = "place of 100";
const FAR_FUTURE = "2999-01-01T00:00:00Z";
const toArrayLiteral = (value: string | number): string => `{${value},${value},${value}}`;

const plain = (statement: Statement, ...params: readonly Param[]): PathStatement => ({
  statement,
  params,
  settings: {},
});
const settling = (statement: Statement, ...params: readonly Param[]): PathStatement => ({
  statement,
  params,
  settings: settlingPlans,
});
const steady = (statement: Statement, ...params: readonly Param[]): PathStatement => ({
  statement,
  params,
  settings: steadyPlans,
});

/** Their streams hold no other row, so a lookup that does not stop at its key reads everything. */
const messages = [1, 2, 3].map((n) => outgoing({ id: `new-${n}`, lane: LANE, stream: String(9e8 + n) }));
const [message = outgoing()] = messages;

function writing(sql: ReturnType<typeof guardedStatements>): PathStatement[] {
  const several = listParams(messages);
  const waits = [textNumbers(3, 60_000), "{NULL,NULL,NULL}"];
  return [
    plain(sql.publish, ...several),
    plain(sql.publishLeased, ...several, 1000),
    plain(sql.publishOne, ...singleParams(messageColumns, message)),
    plain(sql.publishUsual, ...singleParams(usualColumns, message)),
    plain(sql.publishLeasedOne, ...singleParams(messageColumns, message), 1000),
    plain(sql.publishLeasedUsual, ...singleParams(usualColumns, message), 1000),
    plain(sql.publishOnce, ...several),
    plain(sql.publishNamed, ...several),
    plain(sql.schedule, ...several, ...waits),
    plain(sql.reserveIds, IDS),
    plain(sql.reserveNames, IDS),
  ];
}

function textNumbers(count: number, value: number): string {
  return `{${Array.from({ length: count }, () => value).join(",")}}`;
}

function outbox(): PathStatement[] {
  const write = writeStatements(SCHEMA);
  const guarded = guardedStatements(SCHEMA);
  const settle = settleStatements(SCHEMA);
  const hop = hopStatements(SCHEMA);
  const claim = [`{${LANE}}`, "{1}", "{token}"];
  const rows = [toArrayLiteral(LANE), SEQS, IDS];
  return [
    ...writing({ ...guarded, ...write }),
    ...writing(guarded),
    plain(guarded.takeNumber),
    plain(guarded.hasNumber),
    plain(write.lockStreams, SEQS),
    ...[write.scheduleOnce, write.scheduleNamed].map((statement) =>
      plain(statement, ...listParams(messages), textNumbers(3, 60_000), "{NULL,NULL,NULL}"),
    ),
    plain(write.moveDue, 100, "sagabox"),
    plain(write.nextDue),
    settling(settle.sent, ...claim, ...rows, "worker"),
    settling(settle.sentInPlace, ...claim, PLACE_OF_100, "{100}", "worker"),
    settling(settle.sentPast, ...claim, ...rows, "worker"),
    ...[settle.failed, settle.failedPast].map((statement) =>
      settling(statement, ...claim, ...rows, textNumbers(3, 1000), toArrayLiteral("error")),
    ),
    ...[settle.dead, settle.deadPast].map((statement) =>
      settling(
        statement,
        ...claim,
        ...rows,
        toArrayLiteral("t"),
        toArrayLiteral("rejected"),
        ...["type", "error", "stack", "print"].map(toArrayLiteral),
      ),
    ),
    settling(settle.sentLeased, ...rows, "worker"),
    settling(settle.sentLeasedPast, ...rows, "worker"),
    settling(settle.committedLeased, ...rows),
    plain(settle.committedLeased, ...rows),
    settling(settle.releaseLeased, ...rows),
    settling(hop.settle, ...claim, ...rows, "worker"),
    settling(hop.settlePast, ...claim, ...rows, "worker"),
    settling(hop.settleLeased, ...rows, "worker"),
    settling(hop.settleLeasedPast, ...rows, "worker"),
    plain(probeStatements(SCHEMA, "outbox").lane, LANE),
    plain(probeStatements(SCHEMA, "outbox").row, LANE, "100"),
    ...reading("outbox", LANE),
    plain(historyStatements(SCHEMA).forgetIds, "2000-01-01", 1000),
  ];
}

function reading(table: "outbox" | "queue", lane: number): PathStatement[] {
  const read = readStatements(SCHEMA, table);
  const avoided = ["{100}", "{200}", "{}"];
  return [
    steady(read.fetch, `{${lane}}`, "{0}", ...avoided, 10, 10),
    steady(read.fetchWhole, `{${lane}}`, "{0}", ...avoided, 10, 10, "2000-01-01", "2999-01-01"),
    steady(read.express, `{${lane}}`, 1000, ...avoided, 10, 10),
    steady(read.reenter, `{${lane}}`, "{100}", `{${lane}}`, "{200}", 10),
    steady(read.messages, IDS, "2000-01-01", "2999-01-01"),
  ];
}

function queue(): PathStatement[] {
  const sql = queueStatements(SCHEMA);
  const delivery = deliveryStatements(SCHEMA);
  const claim = [`{${QUEUE_LANE}}`, "{1}", "{token}"];
  const rows = [toArrayLiteral(QUEUE_LANE), SEQS, IDS];
  const params = listParams(messages);
  const carried = [
    ...params.slice(0, 17),
    ...params.slice(19, 21),
    toArrayLiteral(FAR_FUTURE),
    toArrayLiteral(FAR_FUTURE),
  ];
  return [
    plain(sql.publish, ...carried),
    plain(sql.park, ...carried, GROUP, textNumbers(3, 1), textNumbers(3, 1000), toArrayLiteral("error")),
    plain(sql.parked, GROUP, toArrayLiteral(LANE), "{100,200,900000000}"),
    settling(delivery.acked, ...claim, ...rows),
    plain(delivery.ackInside, QUEUE_LANE, "100", "m-100"),
    plain(delivery.ackInsideAll, ...rows),
    settling(delivery.ackedPast, ...claim, ...rows),
    ...[delivery.retried, delivery.retriedPast].map((statement) =>
      settling(
        statement,
        ...claim,
        ...rows,
        textNumbers(3, 1000),
        textNumbers(3, 1),
        toArrayLiteral("error"),
      ),
    ),
    plain(probeStatements(SCHEMA, "queue").row, QUEUE_LANE, "100"),
    ...reading("queue", QUEUE_LANE),
  ];
}

function inbox(): PathStatement[] {
  const sql = inboxStatements(SCHEMA);
  const fresh = ["consumer", "new-1", "topic", "type"];
  const once = onceStatement(SCHEMA, "insert into effect select $1::text from fresh", 1);
  return [
    plain(sql.remember, ...fresh, null),
    plain(sql.rememberInTime, ...fresh, null, FAR_FUTURE),
    plain(sql.rememberAll, "consumer", "{new-1,m-2}", "{t,t}", "{t,t}", "{NULL,NULL}", "{NULL,NULL}"),
    plain(sql.rememberAlike, "consumer", "{new-1,m-2}", "topic", "type"),
    plain(sql.passOver, ...fresh),
    plain(sql.claim, ...fresh, null, null, "{m-5,new-2}", "{t,t}", "{t,t}"),
    plain(sql.effectOf, "consumer", IDS),
    plain(sql.takeBack, "consumer", IDS, "m-400"),
    plain(sql.carriedOut, "consumer", "{none-1,none-2}"),
    plain(sql.adopt, "consumer", "m-100", "m-200", null),
    plain(sql.withoutEffect, "consumer", "m-100"),
    plain(sql.recall, "consumer", IDS),
    plain(sql.recallAll, "consumer", IDS),
    plain(sql.finish, "consumer", "m-100", 5, null),
    plain(sql.finishAll, "consumer", 5, IDS),
    plain(sql.finishWithResults, "consumer", 5, IDS, "{1,2,3}"),
    plain(sql.forget, 3_600_000, 1000),
    plain(sql.stay),
    plain(sql.list, "member", "consumer", IDS, false),
    plain(sql.notice, 0),
    plain(sql.acquit, "consumer", "m-100"),
    plain(once, "value", ...fresh, null),
  ];
}

/** One transition as the writer of transitions sends it. */
const transition = (n: number): string =>
  JSON.stringify({
    id: `s-${n}`,
    version: 0,
    status: "running",
    state: {},
    retries: 0,
    due: null,
    lines: [],
  });

function sagas(): PathStatement[] {
  const sql = sagaStatements(SCHEMA);
  const birth = [
    "s-new",
    "type",
    1,
    "key-new",
    "{}",
    "t",
    "t",
    "c",
    null,
    null,
    "worker",
    1e3,
    null,
    "running",
    "{}",
    null,
    null,
    null,
    null,
    0,
    null,
    null,
    "cause",
    null,
    "[]",
    "{}",
    null,
    null,
    null,
  ];
  const claiming = ["worker", 1000, "{type/1}", 10];
  return [
    plain(sql.insert, ...birth),
    plain(sql.insertFailed, ...birth, "{}", "error"),
    plain(sql.collect, "s-1", "type", "key-100"),
    plain(sql.idOf, "type", "key-100"),
    plain(sql.meet, "type", "key"),
    plain(sql.started, "{type,type}", "{key-100,key-200}"),
    plain(sql.load, "s-100"),
    plain(sql.read, "s-100"),
    plain(sql.loadByKey, "type", "key-100"),
    plain(sql.save, `[${transition(100)},${transition(200)},${transition(300)}]`),
    plain(sql.ignore, "s-100", 1, "note", "cause", null, null, null),
    plain(sql.input, "s-100"),
    plain(sql.deleteInput, "s-100", "{input-100,input-200}"),
    plain(sql.dropInput, "s-100"),
    plain(sql.post, "s-100", "input-new", "cause", "{}"),
    plain(sql.holdAttached, "s-100", "{blob-100,blob-200}"),
    plain(sql.keep, "input-new", "type", "key-new", "cause", "{}", 1000),
    plain(sql.claim, ...claiming),
    plain(sql.claimAhead, ...claiming),
    plain(sql.claimWithInput, ...claiming),
    plain(sql.nextDue, "{type/1}"),
    plain(sql.renew, "worker", 1000, "{s-100,s-200}"),
    plain(sql.release, "s-100", "worker"),
    plain(sql.giveBack, "{s-100,s-200}", "worker"),
    plain(sql.discountClaim, "s-100", "worker"),
    plain(sql.park, "s-100", "worker", "error", "running"),
    plain(sql.forget, 1e12, 1000),
    plain(sql.forgetUnclaimed, 1000),
  ];
}

function others(): PathStatement[] {
  const letters = deadLetterStatements(SCHEMA);
  const replies = requestStatements(SCHEMA);
  const blobs = ledgerStatements(SCHEMA);
  const keys = privacyStatements(SCHEMA);
  const subject = "100".padStart(43, ".");
  return [
    plain(
      letters.bury,
      "consumer",
      "consumer",
      "m-100",
      "event",
      "type",
      1,
      "topic",
      "key",
      null,
      null,
      null,
      "c",
      null,
      "t",
      "source",
      null,
      5,
      10,
      "{}",
      "{}",
      null,
      null,
      "rejected",
      1,
      "type",
      "error",
      null,
      null,
    ),
    plain(letters.forget, "100 years", 1000),
    plain(replies.find, IDS),
    plain(replies.forget, 1e12, 1000),
    plain(blobs.home),
    plain(blobs.note, "blob-new", "store", 1, "0".repeat(64), "m-100", null, null),
    plain(blobs.use, "{blob-100,blob-200}", "m-100", null, null),
    plain(blobs.reserve, "blob-new", "store"),
    plain(blobs.touch, "blob-100"),
    plain(blobs.complete, "blob-100", 1, "0".repeat(64)),
    plain(keys.keyOf, subject),
    plain(keys.addKey, "new".padStart(22, "."), subject, "wrapped", "kek"),
    plain(keys.keys, `{${"100".padStart(22, ".")}}`),
    plain(keys.fingerprint),
  ];
}

/** Every statement that runs once or more for a message, a saga's transition or a round of upkeep of their tables. */
export function messagePath(): readonly PathStatement[] {
  return [...outbox(), ...queue(), ...inbox(), ...sagas(), ...others()];
}
