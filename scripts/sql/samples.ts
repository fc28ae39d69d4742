// Arguments for the functions in statements files that put a statement together from parts.
import { rolesSql } from "../../src/admin/index.ts";

const SCHEMA = '"sagabox"';

/** The arguments of one variant; or its text, where another function calls the one in the statements file. */
type Sample = readonly unknown[] | string;

const tables = { "on the outbox": [SCHEMA, "outbox"], "on the queue": [SCHEMA, "queue"] };
const deadLetterFilters = "fingerprint origin consumer type topic reason messageId key key text since until";
const deadLetters = {
  "without a filter": [["open"]],
  "with every filter": [["open", ...deadLetterFilters.split(" ")]],
};
const sagaFilters = "type status step key correlationId olderThanMs after";
const query = "select name from customer join fresh on true";
const write = "insert into customer (name) select $1::text from fresh";

/** By file and function, or by file, function and property: what distinguishes each variant, and its arguments. */
export const samples: Readonly<Record<string, Readonly<Record<string, Sample>>>> = {
  "admin/dead-letters/statements.ts#deadLetterAdminStatements.groups": deadLetters,
  "admin/dead-letters/statements.ts#deadLetterAdminStatements.held": deadLetters,
  "admin/dead-letters/statements.ts#deadLetterAdminStatements.discard": deadLetters,
  "admin/dead-letters/statements.ts#deadLetterAdminStatements.leftOpen": deadLetters,
  ...remedySamples({
    logged: ['"sagabox".outbox'],
    vacuumAgain: ['"sagabox".outbox'],
    vacuumSettings: ['"sagabox".outbox'],
    commitSafely: ["shop", "shop_app"],
    dropSlot: ["old_slot"],
    endSession: [4711],
    readStatistics: ["shop_app"],
  }),
  "admin/explain/statements.ts#explainStatements": {
    "for roles that may read contents": [SCHEMA, true],
    "for roles that may not read contents": [SCHEMA, false],
  },
  "admin/explain/statements.ts#findStatements": {
    "for roles that may read contents": [SCHEMA, true],
    "for roles that may not read contents": [SCHEMA, false],
  },
  "admin/explain/statements.ts#findStatements.messages": {
    "by key": ["key"],
    "by correlation id": ["correlationId"],
    "by trace id": ["traceId"],
    "by saga": ["sagaId"],
  },
  "admin/consumers/statements.ts#consumerStatements.list": {
    "of every key": [false],
    "of one key": [true],
  },
  "admin/outbox/statements.ts#outboxStatements.scheduled": {
    "for roles that may read contents": [true],
    "for roles that may not read contents": [false],
  },
  "admin/outbox/statements.ts#outboxStatements.list": {
    "for roles that may read contents": [true],
    "for roles that may not read contents": [false],
  },
  "admin/roles/statements.ts#rolesScript": {
    "the output of `sagabox roles sql`": rolesSql({ schema: "sagabox" }),
  },
  "admin/sagas/statements.ts#adminStatements.listSagas": {
    "without a filter": [[]],
    "with every filter": [sagaFilters.split(" ")],
  },
  "audit/statements.ts#listStatement": {
    "both logs, without a filter": [SCHEMA, ["saga", "action"], []],
    "the saga log, filtered by saga": [SCHEMA, ["saga"], [{ log: "saga", sql: "row.saga_id = $2::text" }]],
  },
  "audit/statements.ts#partitionStatements": {
    "for the saga log and October 2026": [
      SCHEMA,
      {
        table: "saga_audit_log",
        name: "saga_audit_log_202610",
        month: "2026-10-01",
        next: "2026-11-01",
      },
    ],
  },
  "dead-letter/statements.ts#deadLetterStatements.list": deadLetters,
  "dead-letter/statements.ts#deadLetterStatements.listInOrder": deadLetters,
  "inbox/statements.ts#onceStatement": {
    "around a query of the user without parameters": [SCHEMA, query, 0],
    "around a write of the user with one parameter": [SCHEMA, write, 1],
  },
  "inbox/statements.ts#claimedStatement": {
    "around a query of the user without parameters": [query, 0],
    "around a write of the user with one parameter": [write, 1],
  },
  "inbox/receive-statements.ts#receiveStatements": {}, // runs statements; it defines none
  "lanes/statements.ts#dueStatement": tables,
  "lanes/statements.ts#probeStatements": tables,
  "lanes/statements.ts#readStatements": tables,
  "outbox/statements.ts#sentStatements": {}, // a selection of statements that are listed already
  "outbox/upkeep/statements.ts#partitionStatements": {
    "for the messages of 1 October 2026": [
      SCHEMA,
      { table: "message", column: "written_on", name: "message_20261001", day: "2026-10-01" },
    ],
  },
  "outbox/upkeep/statements.ts#partitionStatements.adopt": {
    "with the columns of the table": ["id, written_on, seq, …"],
  },
  "storage/statements.ts#migrationScript": {}, // the migrations are in src/storage/migrations
};

function remedySamples(remedies: Readonly<Record<string, readonly unknown[]>>): typeof samples {
  return Object.fromEntries(
    Object.entries(remedies).map(([name, args]) => [
      `admin/doctor/statements.ts#remedies.${name}`,
      { "printed by `sagabox doctor`": args },
    ]),
  );
}
