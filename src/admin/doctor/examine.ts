import { errorText, isSagaboxError } from "../../errors/index.ts";
import { randomToken, systemClock, withDeadline } from "../../runtime/index.ts";
import {
  type Database,
  hasOwnSessions,
  notify,
  quoteSchema,
  readMigrationStatus,
  type Session,
  sqlState,
  SQLSTATE,
} from "../../storage/index.ts";
import { findUnreadLanes } from "../overview/unread-lanes.ts";
import { assertRights } from "../roles/assert-rights.ts";
import { roleNames } from "../roles/roles.ts";
import { findStuckSagas } from "../sagas/list-sagas.ts";
import { createSagaAdmin } from "../sagas/saga-admin.ts";
import { advice, type Diagnosis, fine, problem } from "./diagnosis.ts";
import { manifest } from "./manifest.generated.ts";
import {
  judgeDrift,
  judgeMigrations,
  judgePartitions,
  judgeRights,
  judgeTables,
  type PartitionFacts,
  type SchemaPart,
  type TableFacts,
} from "./schema-checks.ts";
import {
  type EncodingFacts,
  type HiddenFacts,
  judgeClock,
  judgeConnections,
  judgeDurability,
  judgeEncoding,
  judgeSessions,
  judgeSharing,
  judgeSlots,
  judgeVersion,
  judgeWakeUp,
  type ServerFacts,
  type SessionFacts,
  type SlotFacts,
  type WakeUpFacts,
} from "./server-checks.ts";
import { doctorStatements, type DoctorStatements } from "./statements.ts";
import {
  type ConservationFacts,
  type ConsumerFacts,
  type DeadLetterFacts,
  judgeConservation,
  judgeConsumers,
  judgeDeadLetters,
  judgeLanes,
  judgeRelay,
  judgeSagas,
  judgeSeals,
  judgeTopics,
  type RelayFacts,
  type SealFacts,
  type TopicFacts,
} from "./work-checks.ts";

export interface Examination {
  readonly healthy: boolean;
  readonly problems: number;
  readonly advice: number;
  readonly findings: readonly Diagnosis[];
}

export interface ExamineOptions {
  /** Enables the production checks, with the facts that the database does not have. */
  readonly production?: Omit<ProductionFacts, "subjects" | "archiveMs" | "deadLetterMs">;
  /** Connections that each worker may open. Default 30. */
  readonly poolSize?: number;
  /** Age in milliseconds from which a transaction counts as long. Default 300,000 (5 minutes). */
  readonly longMs?: number;
  /** Timeout in milliseconds for the test notification. Default 3,000. */
  readonly patienceMs?: number;
}

type Check = readonly [name: string, look: () => Promise<readonly Diagnosis[]>];

/** Checks the server, the schema and the workers through one connection. Read-only. */
export async function examine(
  database: Database,
  schema: string,
  options: ExamineOptions = {},
): Promise<Examination> {
  const sessions = judgeSharing(await hasOwnSessions(database));
  if (sessions.severity === "problem") return toExamination([sessions]); // other checks would fail on a shared session
  const { applied, pending } = await readMigrationStatus(database, schema);
  const migrations = judgeMigrations(
    applied.length,
    pending.map(({ name }) => name),
  );
  const { rows } = await database.run<EncodingFacts>(doctorStatements(quoteSchema(schema)).encoding);
  const found = [sessions, ...rows.map(judgeEncoding), ...migrations];
  if (pending.length === 0) {
    for (const check of listChecks(database, schema, options)) found.push(...(await runCheck(check)));
  }
  return toExamination(found);
}

function toExamination(found: readonly Diagnosis[]): Examination {
  const count = (severity: Diagnosis["severity"]): number =>
    found.filter((one) => one.severity === severity).length;
  const order = ["problem", "advice", "fine"];
  return {
    healthy: count("problem") === 0,
    problems: count("problem"),
    advice: count("advice"),
    findings: found.toSorted((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity)),
  };
}

function listChecks(database: Database, schema: string, options: ExamineOptions): readonly Check[] {
  const quoted = quoteSchema(schema);
  const sql = doctorStatements(quoted);
  const all = async <R>(name: keyof DoctorStatements, ...params: readonly string[]): Promise<readonly R[]> =>
    (await database.run<R>(sql[name], params)).rows;
  const one = async <R>(name: keyof DoctorStatements, ...params: readonly string[]): Promise<R> =>
    (await all<R>(name, ...params))[0] as R;
  const server = (): Promise<ServerFacts> => one<ServerFacts>("server");
  return [
    ["server version", async () => judgeVersion(await server())],
    ["durability", async () => judgeDurability(await server())],
    ["schema", async () => judgeDrift(await all<SchemaPart>("parts", quoted), manifest, schema)],
    ["rights", async () => judgeRights({ ...(await server()), roles: await findRoles(database, schema) })],
    [
      "wake-up",
      async () => judgeWakeUp(await tryWakeUp(database, schema, options.patienceMs), await server()),
    ],
    ["clock", () => checkClock(() => one<{ now_ms: number }>("clock"))],
    ["connections", async () => judgeConnections(await server(), options.poolSize)],
    ["replication slots", async () => judgeSlots(await all<SlotFacts>("slots"))],
    [
      "long transactions",
      async () =>
        judgeSessions(await all<SessionFacts>("sessions"), await one<HiddenFacts>("hidden"), options.longMs),
    ],
    ["tables", async () => judgeTables(await all<TableFacts>("tables", quoted))],
    ["partitions", async () => judgePartitions(await one<PartitionFacts>("partitions", quoted))],
    ["relay", async () => judgeRelay(await one<RelayFacts>("relay"))],
    ["lanes", async () => judgeLanes(await findUnreadLanes(database, schema))],
    ["consumers", async () => judgeConsumers(await all<ConsumerFacts>("consumers"))],
    ["topics", async () => judgeTopics(await one<TopicFacts>("topics", quoted))],
    ["dead letters", async () => judgeDeadLetters(await one<DeadLetterFacts>("letters"))],
    ["sagas", async () => judgeSagas(await findStuckSagas(createSagaAdmin(database, schema)))],
    ["audit log", async () => judgeSeals(await one<SealFacts>("seals"))],
    ["conservation", async () => judgeConservation(await one<ConservationFacts>("conservation"))],
    ...productionCheck(options, server, one),
  ];
}

function productionCheck(
  { production: given }: ExamineOptions,
  server: () => Promise<ServerFacts>,
  one: <R>(name: keyof DoctorStatements) => Promise<R>,
): readonly Check[] {
  if (given === undefined) return [];
  const look = async (): Promise<readonly Diagnosis[]> => {
    const kept = await one<{ dead_letter_ms: number | null; archive_ms: number | null }>("conservation");
    const { subjects } = await one<{ subjects: boolean }>("subjects");
    const retention = { archiveMs: kept.archive_ms, deadLetterMs: kept.dead_letter_ms };
    return judgeProduction(await server(), { ...given, ...retention, subjects });
  };
  return [["production", look]];
}

async function runCheck([name, look]: Check): Promise<readonly Diagnosis[]> {
  try {
    return await look();
  } catch (error) {
    if (
      sqlState(error) !== SQLSTATE.insufficientPrivilege &&
      !isSagaboxError(error, "STORAGE_PERMISSION_DENIED")
    ) {
      throw error;
    }
    const seen = `could not be checked: ${(error as Error).message}`;
    return [
      advice(
        name,
        seen,
        "This user lacks the rights for this check.",
        "Run the doctor as a member of sagabox_operator, or the owner.",
      ),
    ];
  }
}

async function findRoles(database: Database, schema: string): Promise<readonly string[]> {
  const held: string[] = [];
  for (const role of roleNames) {
    try {
      await assertRights(database, schema, [role]);
      held.push(role);
    } catch (error) {
      if (!isSagaboxError(error, "STORAGE_PERMISSION_DENIED")) throw error;
    }
  }
  return held;
}

// The server reads its clock between request and response, so the quickest of three tries is the most precise.
async function checkClock(ask: () => Promise<{ now_ms: number }>): Promise<readonly Diagnosis[]> {
  let [best, slack] = [0, Infinity];
  for (let attempt = 0; attempt < 3; attempt++) {
    const askedMs = systemClock.wallMs();
    const { now_ms: theirs } = await ask();
    const heardMs = systemClock.wallMs();
    const half = (heardMs - askedMs) / 2;
    if (half < slack) [best, slack] = [askedMs + half - theirs, half];
  }
  return judgeClock(best, slack);
}

const TIMEOUT_MS = 3_000;

/**
 * Sends a test notification on the workers' channel and waits for it on another connection. It only makes the workers poll
 * once.
 */
async function tryWakeUp(
  database: Database,
  schema: string,
  patienceMs: number = TIMEOUT_MS,
): Promise<WakeUpFacts> {
  const channel = `sagabox_${schema}`.slice(0, 63);
  const token = `doctor ${randomToken()}`;
  let session: Session | undefined;
  try {
    session = await database.session("doctor");
    let onNotification = (): void => undefined;
    const heard = new Promise<void>((resolve) => (onNotification = resolve));
    await session.listen(channel, ({ payload }) => {
      if (payload === token) onNotification();
    });
    const sentMs = systemClock.monotonicMs();
    await notify(database, channel, token);
    const arrived = await withDeadline(
      heard.then(() => true),
      patienceMs,
      () => false,
    );
    return { channel, error: null, afterMs: arrived ? systemClock.monotonicMs() - sentMs : null };
  } catch (error) {
    return { channel, afterMs: null, error: errorText(error) };
  } finally {
    session?.release(true);
  }
}

export interface ProductionFacts {
  /** Response of the health endpoint on this machine; null if none is configured. */
  readonly health: { readonly url: string; readonly status: number | null } | null;
  readonly keyRing: boolean;
  /** True if personal data of any subject are encrypted here. */
  readonly subjects: boolean;
  /** Number of secret files that the environment names, and the variables of files that all users can read. */
  readonly secrets: { readonly files: number; readonly open: readonly string[] };
  readonly archiveMs: number | null;
  readonly deadLetterMs: number | null;
  readonly debugLog: boolean;
}

/** Runs the checks that matter only in production. Pure. */
export function judgeProduction(server: ServerFacts, facts: ProductionFacts): readonly Diagnosis[] {
  return [
    checkTls(server),
    checkSuperuser(server),
    checkWorkers(server),
    checkArchiving(server),
    checkWalLevel(server),
    checkHealth(facts),
    checkKeys(facts),
    checkSecrets(facts),
    checkRetention(facts),
    checkLogging(facts),
  ].flat();
}

function checkTls({ ssl, local }: ServerFacts): readonly Diagnosis[] {
  if (ssl === true) return [fine("TLS", "the connection to the database is encrypted")];
  if (local) return [fine("TLS", "not encrypted, but it does not leave this machine")];
  return [
    problem(
      "TLS",
      "the connection to the database is not encrypted",
      "Payloads and the password can be read on the way.",
      "Add sslmode=verify-full (and sslrootcert) to DATABASE_URL.",
    ),
  ];
}

function checkSuperuser({ superuser: is, user_name: user }: ServerFacts): readonly Diagnosis[] {
  if (!is) return [fine("least privilege", `"${user}" is no superuser`)];
  return [
    problem(
      "least privilege",
      `"${user}" is a superuser`,
      "One hole in an application then opens the whole server; nothing here needs it.",
      "sagabox roles sql | psql -- then connect as a member of the role each process needs",
    ),
  ];
}

function checkWorkers({ workers: count }: ServerFacts): readonly Diagnosis[] {
  if (count >= 2) return [fine("workers", `${count} processes are alive`)];
  return [
    problem(
      "workers",
      `${count} process(es) alive`,
      "When it stops, is deployed or dies, nothing is sent or handled.",
      "Run at least two, on different machines: replicas: 2, with a disruption budget.",
    ),
  ];
}

function checkArchiving({ archive_mode: mode }: ServerFacts): readonly Diagnosis[] {
  if (mode !== "off") return [fine("backups", `archive_mode is ${mode}`)];
  return [
    advice(
      "backups",
      "archive_mode is off",
      "Without archived WAL a restore loses everything since the last base backup. Your provider may do it another way.",
      "Set archive_mode = on and archive_command (or use pgBackRest, WAL-G); rehearse a restore.",
    ),
  ];
}

function checkWalLevel({ wal_level: level }: ServerFacts): readonly Diagnosis[] {
  if (level !== "minimal") return [fine("WAL level", level)];
  return [
    advice(
      "WAL level",
      "wal_level is minimal",
      "Neither standbys nor archiving work, so a lost disk is lost data.",
      "alter system set wal_level = replica; -- and restart the server",
    ),
  ];
}

function checkHealth({ health: found }: ProductionFacts): readonly Diagnosis[] {
  if (found === null) {
    return [fine("health", "not asked: neither SAGABOX_PORT nor SAGABOX_HOST is set here")];
  }
  if (found.status === 200) return [fine("health", `${found.url} answers that it is ready`)];
  return [
    advice(
      "health",
      found.status === null ? `no response from ${found.url}` : `${found.url} answers ${found.status}`,
      "Without it, a hanging process is not restarted, and no metrics are collected.",
      "Start the worker with --port, and let the orchestrator ask /health/live and /health/ready.",
    ),
  ];
}

function checkKeys({ keyRing, subjects }: ProductionFacts): readonly Diagnosis[] {
  if (!subjects) return [fine("keys", "no personal data are encrypted here")];
  if (keyRing) return [fine("keys", "personal data are encrypted, and a key ring is set")];
  return [
    problem(
      "keys",
      "personal data are encrypted, and no key ring is set here",
      "A process without it can neither send nor handle messages with personal data.",
      "Set SAGABOX_KEY_RING_FILE to a file that only this user may read.",
    ),
  ];
}

// Only advice: a container may have no other users, and some platforms mount secrets with open permissions.
function checkSecrets({ secrets: { files, open } }: ProductionFacts): readonly Diagnosis[] {
  if (files === 0) return [fine("secrets", "none is read from a file here")];
  if (open.length === 0) return [fine("secrets", `${files} file(s) with secrets, closed to other users`)];
  return [
    advice(
      "secrets",
      `every user of this machine can read or change the file of ${open.join(", ")}`,
      "Any user of the machine can get the password or the keys in it.",
      `chmod o= ${open.map((name) => `"$${name}"`).join(" ")}`,
    ),
  ];
}

function checkRetention({ archiveMs, deadLetterMs }: ProductionFacts): readonly Diagnosis[] {
  if (archiveMs === null || deadLetterMs === null) {
    return [
      advice(
        "retention",
        "no worker has stored its retention yet",
        "Without upkeep the archive grows until the disk is full.",
        "Run a worker with the part upkeep; set outbox.retention and deadLetterRetention.",
      ),
    ];
  }
  const daysText = (ms: number): string => `${Math.round(ms / 86_400_000)} days`;
  return [fine("retention", `messages ${daysText(archiveMs)}, dead letters ${daysText(deadLetterMs)}`)];
}

function checkLogging({ debugLog }: ProductionFacts): readonly Diagnosis[] {
  if (!debugLog) return [fine("logging", "not at debug")];
  return [
    advice(
      "logging",
      "the log level is debug",
      "A line for each message costs more than the message.",
      "SAGABOX_LOG_LEVEL=info",
    ),
  ];
}
