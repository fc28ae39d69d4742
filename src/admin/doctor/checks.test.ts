import { expect, test } from "vitest";
import type { Diagnosis } from "./diagnosis.ts";
import { judgeProduction, type ProductionFacts } from "./examine.ts";
import { judgeDrift, judgePartitions, judgeTables, type SchemaPart } from "./schema-checks.ts";
import {
  judgeClock,
  judgeConnections,
  judgeDurability,
  judgeSessions,
  judgeSlots,
  judgeVersion,
  judgeWakeUp,
  type ServerFacts,
} from "./server-checks.ts";
import {
  judgeConservation,
  judgeConsumers,
  judgeDeadLetters,
  judgeRelay,
  judgeSagas,
  judgeSeals,
  judgeTopics,
} from "./work-checks.ts";

const server: ServerFacts = {
  version_number: 180_004,
  version: "18.4",
  standby: false,
  fsync: "on",
  full_page_writes: "on",
  synchronous_commit: "on",
  autovacuum: "on",
  wal_level: "replica",
  archive_mode: "on",
  max_connections: 100,
  reserved: 3,
  used: 20,
  workers: 2,
  notify_queue: 0,
  superuser: false,
  user_name: "app",
  database_name: "shop",
  ssl: true,
  local: false,
};
const production: ProductionFacts = {
  health: null,
  keyRing: true,
  subjects: true,
  secrets: { files: 2, open: [] },
  archiveMs: 30 * 86_400_000,
  deadLetterMs: 14 * 86_400_000,
  debugLog: false,
};
const table = {
  name: "outbox",
  live: 10,
  dead: 0,
  size: 8_192,
  unlogged: false,
  vacuum_off: false,
  tuned: true,
  vacuumed_at: null,
};
const session = { pid: 7, user_name: "app", application: "", state: "active", age_ms: 0, prepared: null };
const shown = { hidden: 0, user_name: "app" };
const prod = (change: Partial<ProductionFacts>, other: Partial<ServerFacts> = {}) =>
  judgeProduction({ ...server, ...other }, { ...production, ...change });

test.each<[string, readonly Diagnosis[], readonly string[], RegExp]>([
  ["all versions that are tested", judgeVersion(server), ["fine"], /18\.4/],
  ["an old server", judgeVersion({ ...server, version_number: 140_010 }), ["problem"], /./],
  ["a newer server", judgeVersion({ ...server, version_number: 190_000 }), ["advice"], /./],
  ["a standby", judgeVersion({ ...server, standby: true }), ["fine", "problem"], /standby/],
  ["no fsync", judgeDurability({ ...server, fsync: "off" }), ["problem"], /fsync = on/],
  ["lazy commits", judgeDurability({ ...server, synchronous_commit: "off" }), ["problem"], /"shop"/],
  [
    "no autovacuum",
    judgeDurability({ ...server, autovacuum: "off" }),
    ["fine", "problem"],
    /autovacuum = on/,
  ],
  ["no connection left", judgeConnections({ ...server, used: 90 }), ["problem"], /max_connections/],
  ["pools that are too large", judgeConnections({ ...server, workers: 5 }), ["advice"], /at most 19/],
  ["enough connections", judgeConnections(server), ["fine"], /20 of 97/],
  [
    "a slot left behind",
    judgeSlots([{ name: "s", active: false, retained: 2e9, status: "reserved" }]),
    ["problem"],
    /drop_replication_slot\('s'\)/,
  ],
  [
    "a small slot left behind",
    judgeSlots([{ name: "s", active: false, retained: 100, status: null }]),
    ["advice"],
    /100 bytes/,
  ],
  [
    "a lost slot",
    judgeSlots([{ name: "s", active: true, retained: 0, status: "lost" }]),
    ["problem"],
    /lost/,
  ],
  ["a short transaction", judgeSessions([session], shown), ["fine"], /none/],
  [
    "sessions it is not shown",
    judgeSessions([session], { hidden: 2, user_name: 'o"p' }),
    ["advice"],
    /could not be checked: .*2 session.*grant pg_read_all_stats to \\*"o\\*"\\*"p/,
  ],
  [
    "sessions it is not shown beside one that is long",
    judgeSessions([{ ...session, age_ms: 400_000 }], { hidden: 1, user_name: "op" }),
    ["advice", "advice"],
    /7 min.*could not be checked/,
  ],
  [
    "one that sits idle",
    judgeSessions([{ ...session, state: "idle in transaction", age_ms: 400_000 }], shown),
    ["problem"],
    /pg_terminate_backend\(7\)/,
  ],
  ["a long report", judgeSessions([{ ...session, age_ms: 400_000 }], shown), ["advice"], /7 min/],
  [
    "a prepared one",
    judgeSessions([{ ...session, prepared: "it's", age_ms: 400_000 }], shown),
    ["problem"],
    /'it''s'/,
  ],
  ["clocks that agree", judgeClock(-900, 5), ["fine"], /900 ms behind/],
  ["clocks that differ", judgeClock(5_000, 5), ["advice"], /ahead/],
  ["a clock of another time", judgeClock(-3_600_000, 5), ["problem"], /NTP/],
  [
    "no wake-up",
    judgeWakeUp({ afterMs: null, error: null, channel: "c" }, server),
    ["problem"],
    /session mode/,
  ],
  [
    "a full queue",
    judgeWakeUp({ afterMs: 2, error: null, channel: "c" }, { notify_queue: 0.7 }),
    ["fine", "problem"],
    /70 %/,
  ],
  ["an unlogged table", judgeTables([{ ...table, unlogged: true }]), ["problem"], /set logged/],
  ["dead rows", judgeTables([{ ...table, dead: 50_000 }]), ["advice"], /vacuum \(analyze\) outbox/],
  [
    "missing days",
    judgePartitions({ missing: ["message_1"], strays: ["message_default"] }),
    ["problem", "advice"],
    /migrate up/,
  ],
  ["no relay", judgeRelay({ relays: 0, oldest_ms: null }), ["problem"], /sagabox worker/],
  ["a slow relay", judgeRelay({ relays: 1, oldest_ms: 70_000 }), ["problem"], /1 min/],
  [
    "a consumer that is gone",
    judgeConsumers([{ name: "b", members: 0, waiting: 1, topics: 1 }]),
    ["problem"],
    /"b"/,
  ],
  [
    "a consumer at rest",
    judgeConsumers([{ name: "b", members: 0, waiting: 0, topics: 1 }]),
    ["advice"],
    /"b"/,
  ],
  ["a broker's consumers", judgeTopics({ subscriptions: 0, topics: ["x"], events: [] }), ["fine"], /broker/],
  [
    "a command for nobody",
    judgeTopics({ subscriptions: 1, topics: ["x"], events: [] }),
    ["advice"],
    /sagabox topology --app <your module>/,
  ],
  ["an event for nobody", judgeTopics({ subscriptions: 1, topics: [], events: ["x"] }), ["fine"], /x/],
  ["dead letters", judgeDeadLetters({ open: 3, oldest_ms: 1_000, retention_ms: null }), ["advice"], /dlq/],
  [
    "letters near their end",
    judgeDeadLetters({ open: 3, oldest_ms: 900, retention_ms: 1_000 }),
    ["problem"],
    /dlq/,
  ],
  ["a slow saga", judgeSagas([{ reason: "slow", id: "s", why: "w" }]), ["advice"], /saga stuck/],
  ["a failed saga", judgeSagas([{ reason: "incident", id: "s", why: "w" }]), ["problem"], /saga stuck/],
  ["no sealer", judgeSeals({ unsealed_ms: 1_000_000 }), ["problem"], /audit seal/],
  ["something lost", judgeConservation({ age_ms: 10, wrong: 1, missed: 0 }), ["problem"], /sagabox verify/],
  ["never checked", judgeConservation({ age_ms: null, wrong: 0, missed: 0 }), ["advice"], /sagabox verify/],
  ["windows not seen", judgeConservation({ age_ms: 10, wrong: 0, missed: 2 }), ["advice"], /sagabox verify/],
  ["a plain connection", prod({}, { ssl: false }).slice(0, 1), ["problem"], /verify-full/],
  ["a superuser", prod({}, { superuser: true }).slice(1, 2), ["problem"], /roles sql/],
  ["one worker", prod({}, { workers: 1 }).slice(2, 3), ["problem"], /two/],
  ["no archiving", prod({}, { archive_mode: "off" }).slice(3, 4), ["advice"], /archive_command/],
  [
    "a health port without answer",
    prod({ health: { url: "http://x", status: null } }).slice(5, 6),
    ["advice"],
    /--port/,
  ],
  ["no key ring", prod({ keyRing: false }).slice(6, 7), ["problem"], /KEY_RING_FILE/],
  [
    "a secret that everybody reads",
    prod({ secrets: { files: 2, open: ["DATABASE_URL_FILE"] } }).slice(7, 8),
    ["advice"],
    /chmod o= "\$DATABASE_URL_FILE"/,
  ],
  ["no secret in a file", prod({ secrets: { files: 0, open: [] } }).slice(7, 8), ["fine"], /none/],
  ["no retention", prod({ archiveMs: null }).slice(8, 9), ["advice"], /retention/],
  ["a debug log", prod({ debugLog: true }).slice(9, 10), ["advice"], /info/],
])("G13: the doctor judges %s", (_, found, severities, said) => {
  expect(found.map(({ severity }) => severity)).toEqual(severities);
  expect(JSON.stringify(found).replaceAll('\\"', '"')).toMatch(said);
  for (const { severity, why, fix } of found) {
    expect([why !== null, fix !== null]).toEqual([severity !== "fine", severity !== "fine"]);
  }
});

test("G13: a production that is as it should be is fine throughout", () => {
  expect(prod({ health: { url: "u", status: 200 } }).every(({ severity }) => severity === "fine")).toBe(true);
});

test("G13: drift is told part by part, with the statement that mends an index", () => {
  const index: SchemaPart = {
    kind: "index",
    name: "outbox_stream",
    shape: "CREATE INDEX outbox_stream ON outbox (lane)",
  };
  const column: SchemaPart = { kind: "column", name: "outbox.lane", shape: "integer" };
  const found = judgeDrift(
    [
      { ...column, shape: "bigint" },
      { kind: "index", name: "mine", shape: "x", invalid: true },
    ],
    [index, column, { ...index, name: "m", shape: "CREATE INDEX m ON ONLY message (lane)" }],
    "box",
  );
  expect(found.map(({ severity, seen }) => [severity, seen])).toEqual([
    ["problem", "index mine is invalid"],
    ["problem", "index outbox_stream is missing"],
    ["problem", "index m is missing"],
    ["problem", "column outbox.lane is not what the migrations make: bigint"],
    ["advice", "1 object(s) that no migration created: index mine"],
  ]);
  expect(found[1]?.fix).toBe("CREATE INDEX CONCURRENTLY outbox_stream ON box.outbox (lane);");
  expect(found[2]?.fix).toBe("CREATE INDEX m ON box.message (lane);");
  expect(found[3]?.fix).toContain("It should be: integer. Find column outbox.lane in `sagabox migrate sql");
});

test("a function that was changed is named, with what to do, and without a fingerprint nobody can read", () => {
  const wanted: SchemaPart = { kind: "function", name: "audit_refuse()", shape: "a".repeat(32) };
  const [found] = judgeDrift([{ ...wanted, shape: "b".repeat(32) }], [wanted], "box");
  expect(found?.seen).toBe("function audit_refuse() is not what the migrations make");
  expect(found?.fix).toMatch(
    /Find function audit_refuse\(\) in `sagabox migrate sql --schema box` and make it so/,
  );
  expect(JSON.stringify(found)).not.toMatch(/[ab]{32}/);
});
