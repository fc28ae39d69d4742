// Lists the files that run from the publish of one message until its delivery is acknowledged, with PostgreSQL as the
// transport and a relay as the sender. The coverage of V8 counts the functions that run between two moments.
import { Session } from "node:inspector/promises";
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { createBus, event } from "sagabox";
import { startEmbeddedPostgres } from "sagabox/embedded";
import { z } from "zod";

/** What these files do meanwhile is not part of the message's way. */
const ELSEWHERE: Readonly<Record<string, readonly string[]>> = {
  "services that run at intervals": [
    "app/periodic-services",
    "outbox/upkeep/schedule",
    "outbox/upkeep/depths",
  ],
  "observers of what happens": ["app/saga-watch", "notify/notices", "telemetry/*", "saga/*", "lanes/sample"],
  "checks of each connection or error": ["storage/pooler", "storage/drivers/pg-shape", "runtime/process"],
};
/** Files without functions that run, which a reader has to open. */
const OPENED = [
  "inbox/statements",
  "message/message",
  "outbox/statements",
  "transport/transport",
  "transports/postgres/statements",
];
const IS_OBSERVER_INTERFACE = "telemetry/observer";

const Placed = event("walk.placed", { schema: z.object({ id: z.string() }), key: ({ id }) => id });

const folder = await mkdtemp(join(tmpdir(), "sagabox-walk-"));
await chmod(folder, 0o755); // the server may run under another account
const server = await startEmbeddedPostgres({ dataDir: join(folder, "postgres") });
const pool = new pg.Pool({ connectionString: server.url, max: 20 });
const bus = createBus({ service: "walk", database: pool, log: "error", outbox: { optimistic: false } });
try {
  print(await measure());
} finally {
  await bus.stop();
  await pool.end();
  await server.stop();
  await rm(folder, { recursive: true, force: true });
}

async function measure(): Promise<string[]> {
  await bus.migrate();
  await pool.query("create table walk (id text)");
  let onHandled = (): void => undefined;
  bus.on(Placed, { consumer: "walk" }, async ({ data }, { tx }) => {
    await tx.query("insert into walk values ($1)", [data.id]);
    onHandled();
  });
  await bus.run();
  const walk = async (id: string): Promise<void> => {
    const handled = new Promise<void>((resolve) => (onHandled = resolve));
    await bus.transaction((tx) => tx.publish(Placed, { id }));
    await handled;
    await untilSettled();
  };
  await walk("the first one prepares statements and caches");
  const session = new Session();
  session.connect();
  await session.post("Profiler.enable");
  await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  await session.post("Profiler.takePreciseCoverage"); // begins anew
  await walk("the measured one");
  const { result } = await session.post("Profiler.takePreciseCoverage");
  session.disconnect();
  return result
    .filter(({ functions }) =>
      functions.some((one) => one.functionName !== "" && (one.ranges[0]?.count ?? 0) > 0),
    )
    .flatMap(({ url }) => /\/src\/(.+)\.ts$/.exec(url)?.[1] ?? []);
}

/** Resolves when no row waits in the outbox or in the queue. */
async function untilSettled(): Promise<void> {
  for (let looks = 0; looks < 600; looks++) {
    const { rows } = await pool.query<{ waiting: boolean }>(
      "select exists (select from sagabox.outbox) or exists (select from sagabox.queue) as waiting",
    );
    if (rows[0]?.waiting === false) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("The message was not settled within 30 s.");
}

function print(ran: readonly string[]): void {
  const patterns = Object.values(ELSEWHERE).flat();
  const isElsewhere = (file: string): boolean =>
    file !== IS_OBSERVER_INTERFACE &&
    patterns.some((pattern) =>
      pattern.endsWith("/*") ? file.startsWith(pattern.slice(0, -1)) : file === pattern,
    );
  const files = [...new Set([...ran.filter((file) => !isElsewhere(file)), ...OPENED])].toSorted();
  for (const file of files) console.log(OPENED.includes(file) ? `${file} (opened)` : file);
  console.log(`\n${files.length} files. Left out: ${ran.filter(isElsewhere).toSorted().join(", ")}.`);
}
