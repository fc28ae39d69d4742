import { advice, fine, problem, type Diagnosis } from "./diagnosis.ts";
import type { ServerFacts } from "./server-checks.ts";

export interface ProductionFacts {
  /** Answers of the health server of this machine: null when there was none. */
  readonly health: { readonly url: string; readonly status: number | null } | null;
  readonly keyRing: boolean;
  /** Persons whose data are sealed. */
  readonly subjects: boolean;
  /** Files with secrets that the environment names, and the variables of those that every user of the machine can read. */
  readonly secrets: { readonly files: number; readonly open: readonly string[] };
  readonly archiveMs: number | null;
  readonly deadLetterMs: number | null;
  readonly debugLog: boolean;
}

/** What only matters where real messages run. */
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
      found.status === null ? `nobody answers at ${found.url}` : `${found.url} answers ${found.status}`,
      "Without it nobody restarts a process that hangs, and no metrics are read.",
      "Start the worker with --port, and let the orchestrator ask /health/live and /health/ready.",
    ),
  ];
}

function checkKeys({ keyRing, subjects }: ProductionFacts): readonly Diagnosis[] {
  if (!subjects) return [fine("keys", "no personal data are sealed here")];
  if (keyRing) return [fine("keys", "personal data are sealed, and there is a key ring")];
  return [
    problem(
      "keys",
      "personal data are sealed, and no key ring is set here",
      "A process without it can neither send nor handle messages about persons.",
      "Set SAGABOX_KEY_RING_FILE to a file that only this user may read.",
    ),
  ];
}

// Only advice: in a container nobody else may be there, and some platforms mount secrets so.
function checkSecrets({ secrets: { files, open } }: ProductionFacts): readonly Diagnosis[] {
  if (files === 0) return [fine("secrets", "none is read from a file here")];
  if (open.length === 0) return [fine("secrets", `${files} file(s) with secrets, closed to other users`)];
  return [
    advice(
      "secrets",
      `every user of this machine can read or change the file of ${open.join(", ")}`,
      "Whoever gets onto the machine, as anybody, has the password or the keys in it.",
      `chmod o= ${open.map((name) => `"$${name}"`).join(" ")}`,
    ),
  ];
}

function checkRetention({ archiveMs, deadLetterMs }: ProductionFacts): readonly Diagnosis[] {
  if (archiveMs === null || deadLetterMs === null) {
    return [
      advice(
        "retention",
        "no worker has said yet how long things are kept",
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
