import { isSagaboxError } from "../../errors/index.ts";
import { systemClock } from "../../runtime/index.ts";
import {
  hasOwnSessions,
  readMigrationStatus,
  quoteSchema,
  sqlState,
  SQLSTATE,
  type Database,
} from "../../storage/index.ts";
import { findUnreadLanes } from "../overview/unread-lanes.ts";
import { assertRights } from "../roles/assert-rights.ts";
import { roleNames } from "../roles/roles.ts";
import { createSagaAdmin } from "../saga-admin.ts";
import { findStuckSagas } from "../stuck-sagas.ts";
import { advice, type Diagnosis } from "./diagnosis.ts";
import { manifest } from "./manifest.generated.ts";
import { judgeProduction, type ProductionFacts } from "./production-checks.ts";
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
  judgeClock,
  judgeConnections,
  judgeDurability,
  judgeEncoding,
  judgeSessions,
  judgeSharing,
  judgeSlots,
  judgeVersion,
  judgeWakeUp,
  type EncodingFacts,
  type HiddenFacts,
  type ServerFacts,
  type SessionFacts,
  type SlotFacts,
} from "./server-checks.ts";
import { doctorStatements, type DoctorStatements } from "./statements.ts";
import { tryWakeUp } from "./wake-up.ts";
import {
  judgeConservation,
  judgeConsumers,
  judgeLanes,
  judgeDeadLetters,
  judgeRelay,
  judgeSagas,
  judgeSeals,
  judgeTopics,
  type ConservationFacts,
  type ConsumerFacts,
  type DeadLetterFacts,
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
  /** With these, what only matters in production is looked at too; what the process itself cannot know is told here. */
  readonly production?: Omit<ProductionFacts, "subjects" | "archiveMs" | "deadLetterMs">;
  /** How many connections each worker may open. Default 30. */
  readonly poolSize?: number;
  /** From when on a transaction is long. Default 5 minutes. */
  readonly longMs?: number;
  /** How long a hint may take. Default 3 seconds. */
  readonly patienceMs?: number;
}

type Check = readonly [name: string, look: () => Promise<readonly Diagnosis[]>];

/** Looks at everything that can be seen through one connection, and changes nothing. */
export async function examine(
  database: Database,
  schema: string,
  options: ExamineOptions = {},
): Promise<Examination> {
  const sessions = judgeSharing(await hasOwnSessions(database));
  if (sessions.severity === "problem") return toExamination([sessions]); // nothing else can be asked through it
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
    const seen = `could not be looked at: ${(error as Error).message}`;
    return [
      advice(
        name,
        seen,
        "This user may not see it.",
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

// The answer was made somewhere between asking and hearing; of three tries the quickest says most.
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
