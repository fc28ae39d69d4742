import { advice, bytesText, type Diagnosis, durationText, fine, problem } from "./diagnosis.ts";
import { remedies } from "./statements.ts";

export interface ServerFacts {
  readonly version_number: number;
  readonly version: string;
  readonly standby: boolean;
  readonly fsync: string;
  readonly full_page_writes: string;
  readonly synchronous_commit: string;
  readonly autovacuum: string;
  readonly wal_level: string;
  readonly archive_mode: string;
  readonly max_connections: number;
  readonly reserved: number;
  readonly used: number;
  readonly workers: number;
  readonly notify_queue: number;
  readonly superuser: boolean;
  readonly user_name: string;
  readonly database_name: string;
  readonly ssl: boolean | null;
  readonly local: boolean;
}

const MIN_VERSION = 150_000;
const MAX_TESTED_VERSION = 180_000;

export function judgeVersion({
  version_number: number,
  version,
  standby,
}: ServerFacts): readonly Diagnosis[] {
  const found =
    number < MIN_VERSION
      ? problem(
          "server version",
          `PostgreSQL ${version}`,
          "Versions before 15 lack what the statements use, and are not tested.",
          "Upgrade the server to PostgreSQL 15 or later.",
        )
      : Math.floor(number / 10_000) * 10_000 > MAX_TESTED_VERSION
        ? advice(
            "server version",
            `PostgreSQL ${version}`,
            "This version of sagabox was not tested on it.",
            "Look for a newer version of sagabox.",
          )
        : fine("server version", `PostgreSQL ${version}`);
  if (!standby) return [found];
  return [
    found,
    problem(
      "server role",
      "This server is a standby: it takes no writes.",
      "Nothing can be published, sent or handled here.",
      "Point DATABASE_URL at the primary (target_session_attrs=read-write).",
    ),
  ];
}

export interface EncodingFacts {
  readonly encoding: string;
  readonly database_name: string;
}

export function judgeEncoding({ encoding, database_name: name }: EncodingFacts): Diagnosis {
  if (encoding === "UTF8") return fine("encoding", "UTF8");
  return problem(
    "encoding",
    `Database "${name}" has the encoding ${encoding}`,
    "Messages hold any Unicode text, which it cannot store; migrations are refused.",
    "Make a database with `create database … encoding 'UTF8' template template0` and move your data there with pg_dump.",
  );
}

export function judgeSharing(hasOwnSessions: boolean): Diagnosis {
  if (hasOwnSessions) return fine("sessions", "each connection has a session of its own");
  return problem(
    "sessions",
    "Connections share sessions: a pooler in transaction or statement mode is in between",
    "Prepared statements, settings and LISTEN belong to a session; they are lost, or end up with other clients.",
    "Set SAGABOX_DIRECT_URL (option `directUrl`) to the address of PostgreSQL without the pooler. Keep DATABASE_URL if the application needs the pooler.",
  );
}

/** Checks the settings that make a confirmed commit survive a crash of the server. */
export function judgeDurability(facts: ServerFacts): readonly Diagnosis[] {
  const off = (["fsync", "full_page_writes", "synchronous_commit"] as const).filter(
    (name) => facts[name] === "off",
  );
  const durable = off.map((name) =>
    problem(
      "durability",
      `${name} is off`,
      "A message whose commit was answered may be gone after a crash of the server.",
      name === "synchronous_commit"
        ? remedies.commitSafely(facts.database_name, facts.user_name)
        : `alter system set ${name} = on; select pg_reload_conf();`,
    ),
  );
  const vacuum =
    facts.autovacuum === "off"
      ? [
          problem(
            "autovacuum",
            "autovacuum is off",
            "The outbox and the queue live on rows that come and go; without vacuum every read gets slower.",
            "alter system set autovacuum = on; select pg_reload_conf();",
          ),
        ]
      : [];
  if (durable.length > 0) return [...durable, ...vacuum];
  return [fine("durability", "fsync, full_page_writes and synchronous_commit are on"), ...vacuum];
}

/** The default of a pool that sagabox opens itself. */
const DEFAULT_POOL_SIZE = 30;

export function judgeConnections(
  facts: ServerFacts,
  poolSize: number = DEFAULT_POOL_SIZE,
): readonly Diagnosis[] {
  const { max_connections: max, reserved, used, workers } = facts;
  const usable = max - reserved;
  const seen = `${used} of ${usable} connections in use, ${workers} worker process(es)`;
  if (used >= usable * 0.9) {
    return [
      problem(
        "connections",
        seen,
        "The next process that starts, or the next burst, is refused by the server.",
        "Lower the pools (`max` of each pg.Pool), or raise max_connections and restart the server.",
      ),
    ];
  }
  if (workers * poolSize > usable) {
    return [
      advice(
        "connections",
        `${seen}; pools of ${poolSize} would want ${workers * poolSize}`,
        "When all workers are busy at once, some of them get no connection.",
        `Give each worker a pool of at most ${Math.max(1, Math.floor(usable / Math.max(1, workers)))}; \`sagabox tune\` proposes a size.`,
      ),
    ];
  }
  return [fine("connections", seen)];
}

export interface SlotFacts {
  readonly name: string;
  readonly active: boolean;
  readonly retained: number;
  readonly status: string | null;
}

const MAX_RETAINED_WAL_BYTES = 1_073_741_824;

export function judgeSlots(slots: readonly SlotFacts[]): readonly Diagnosis[] {
  const found = slots.flatMap(({ name, active, retained, status }) => {
    if (status === "lost") {
      return [
        problem(
          "replication slots",
          `Slot ${name} has lost the WAL it needs`,
          "Its reader cannot continue.",
          `${remedies.dropSlot(name)} -- and set its reader up again`,
        ),
      ];
    }
    if (active) return [];
    const seen = `Slot ${name} has no reader and keeps ${bytesText(retained)} of WAL`;
    const why =
      "The server keeps all WAL since its reader left, until the disk is full and everything stops.";
    const fix = `Start its reader, or: ${remedies.dropSlot(name)}`;
    return [(retained >= MAX_RETAINED_WAL_BYTES ? problem : advice)("replication slots", seen, why, fix)];
  });
  return found.length > 0 ? found : [fine("replication slots", `${slots.length} slot(s), none left behind`)];
}

export interface SessionFacts {
  readonly pid: number;
  readonly user_name: string | null;
  readonly application: string | null;
  readonly state: string | null;
  readonly age_ms: number;
  readonly prepared: string | null;
}

/** Sessions of other users whose state this user may not see. */
export interface HiddenFacts {
  readonly hidden: number;
  readonly user_name: string;
}

const LONG_MS = 300_000;
const VERY_LONG_MS = 3_600_000;

/** Reports long transactions, which keep vacuum from removing dead rows. */
export function judgeSessions(
  sessions: readonly SessionFacts[],
  hidden: HiddenFacts,
  longMs = LONG_MS,
): readonly Diagnosis[] {
  const long = sessions.filter(({ age_ms: age }) => age >= longMs);
  const found = [...longSessions(long), ...hiddenSessions(hidden)];
  return found.length > 0 ? found : [fine("long transactions", `none longer than ${durationText(longMs)}`)];
}

function hiddenSessions({ hidden, user_name: user }: HiddenFacts): readonly Diagnosis[] {
  if (hidden === 0) return [];
  return [
    advice(
      "long transactions",
      `could not be checked: "${user}" may not see when ${hidden} session(s) of other users began`,
      "Any of them may keep vacuum from its work without being reported here.",
      remedies.readStatistics(user),
    ),
  ];
}

function longSessions(long: readonly SessionFacts[]): readonly Diagnosis[] {
  return long.slice(0, 10).map(({ pid, user_name: user, application, state, age_ms: age, prepared }) => {
    const why = "Vacuum cannot clean up behind it: the outbox grows dead rows and every read gets slower.";
    if (prepared !== null) {
      const name = prepared.replaceAll("'", "''");
      const seen = `Prepared transaction '${prepared}' has waited for ${durationText(age)}`;
      return problem("long transactions", seen, why, `rollback prepared '${name}'; -- or commit prepared`);
    }
    const seen = `${state ?? "open"} for ${durationText(age)}: pid ${pid}, ${user ?? "?"}, ${application || "unnamed"}`;
    const fix = remedies.endSession(pid);
    const bad = state?.startsWith("idle in transaction") === true || age >= VERY_LONG_MS;
    return (bad ? problem : advice)("long transactions", seen, why, fix);
  });
}

/** Judges the clock. `skewMs`: this machine's clock minus the server's. `slackMs`: the error of that measurement. */
export function judgeClock(skewMs: number, slackMs: number): readonly Diagnosis[] {
  const off = Math.abs(skewMs);
  const seen = `this machine is ${Math.round(off)} ms ${skewMs < 0 ? "behind" : "ahead of"} the server (± ${Math.ceil(slackMs)} ms)`;
  if (off - slackMs < 1_000) return [fine("clock", seen)];
  const why =
    "Leases go by the server's clock, so nothing breaks; but ids and times made here sort wrongly, and scheduled times shift.";
  const fix = "Run NTP (chrony or systemd-timesyncd) on this machine and on the server.";
  return [(off - slackMs >= 60_000 ? problem : advice)("clock", seen, why, fix)];
}

export interface WakeUpFacts {
  /** Null if the notification did not arrive. */
  readonly afterMs: number | null;
  readonly error: string | null;
  readonly channel: string;
}

export function judgeWakeUp(
  { afterMs, error, channel }: WakeUpFacts,
  { notify_queue: queue }: Pick<ServerFacts, "notify_queue">,
): readonly Diagnosis[] {
  const full =
    queue >= 0.5
      ? [
          problem(
            "notification queue",
            `${Math.round(queue * 100)} % full`,
            "When it is full, every commit that notifies fails.",
            "Find the listener that sits in an open transaction: see long transactions.",
          ),
        ]
      : [];
  if (afterMs !== null) {
    return [fine("wake-up", `a hint on ${channel} arrived after ${Math.round(afterMs)} ms`), ...full];
  }
  return [
    problem(
      "wake-up",
      error === null ? `a hint on ${channel} was sent and never arrived` : `listening failed: ${error}`,
      "Messages are found by polling only, so each waits for up to a poll interval. A pooler in transaction mode does this.",
      "Connect workers to PostgreSQL itself, or to a pooler in session mode; leave other connections as they are.",
    ),
    ...full,
  ];
}
