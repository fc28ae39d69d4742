import { mkdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname } from "node:path";
import { randomToken } from "../runtime/index.ts";
import { findServerAccount } from "./account.ts";
import { findBinaries, fromFolder } from "./binaries.ts";
import { checkVersion, findReachableDataDir, initialise, isInitialised } from "./data-folder.ts";
import { EmbeddedPostgres } from "./embedded-postgres.ts";
import { embeddedFailure, systemErrorCode } from "./run-program.ts";
import { refuseForeignFolder } from "./native-files.ts";
import { type EmbeddedPostgresOptions, readEmbeddedPostgresSettings } from "./options.ts";
import { findRunningServer, launchServer, type ServerPlan } from "./server-process.ts";

const ATTEMPTS = 3;

/**
 * Starts a PostgreSQL server on a data folder, or reuses the one already running there. It listens on loopback only
 * and supports logical decoding (`wal_level=logical`). If this process is root, the server runs as another account.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const settings = readEmbeddedPostgresSettings(options);
  if (process.platform === "win32") {
    throw embeddedFailure(
      "The embedded server does not run on Windows. Set DATABASE_URL to a server you run.",
    );
  }
  const account = findServerAccount(settings.dataDir);
  const dataDir = findReachableDataDir(settings.dataDir, account, settings.onNotice);
  const { programs } = settings;
  const binaries = await findBinaries(account, programs === undefined ? undefined : [fromFolder(programs)]);
  const plan = { ...settings, dataDir, logFile: `${dataDir}.log`, binaries, account };

  if (!isInitialised(dataDir)) {
    await mkdir(dirname(dataDir), { recursive: true });
    if (dataDir !== settings.dataDir) await refuseForeignFolder(dirname(dataDir));
    // Store the password before creating the cluster, so that two concurrent starts use the same one.
    const password =
      settings.auth === "trust"
        ? undefined
        : (settings.password ?? (await storePassword(dataDir, randomToken())));
    await initialise(dataDir, binaries, account, password);
  }
  checkVersion(dataDir, binaries);
  const password = settings.password ?? (await readPassword(dataDir));
  return startOrReuse(plan, settings.port, password);
}

async function startOrReuse(
  plan: Omit<ServerPlan, "port">,
  requestedPort: number | undefined,
  password: string | undefined,
): Promise<EmbeddedPostgres> {
  for (let attempt = 1; ; attempt += 1) {
    const found = await findRunningServer(plan.dataDir, plan.readyTimeoutMs);
    if (found !== undefined) {
      return new EmbeddedPostgres({ ...plan, port: found.port }, { pid: found.pid, reused: true, password });
    }
    try {
      const port = requestedPort ?? (await findPort(plan.dataDir));
      const pid = await launchServer({ ...plan, port });
      await storePort(plan.dataDir, port);
      return new EmbeddedPostgres({ ...plan, port }, { pid, reused: false, password });
    } catch (error) {
      if (attempt === ATTEMPTS || !isPortOrFolderTaken(error)) throw error;
    }
  }
}

// Another process took the port, or started a server on this data, between the check and the start.
function isPortOrFolderTaken(error: unknown): boolean {
  return (
    error instanceof Error && /Address already in use|postmaster\.pid" already exists/.test(error.message)
  );
}

// Stored next to the data folder, like the password, because the data may belong to another account.
const portPath = (dataDir: string): string => `${dataDir}.port`;

/** Returns the port of the last start if it is still free, so that its URL stays valid; else a free port. */
async function findPort(dataDir: string): Promise<number> {
  const last = Number(await readFile(portPath(dataDir), "utf8").catch(() => ""));
  const isPort = Number.isInteger(last) && last > 0 && last <= 65_535;
  return isPort && (await isPortFree(last)) ? last : findFreePort();
}

/** Stores the port for the next start. A failure is ignored, because the server is already running. */
async function storePort(dataDir: string, port: number): Promise<void> {
  await writeFile(portPath(dataDir), `${port}\n`).catch(() => undefined);
}

/** The password file is next to the data folder and owned by this user; the data may belong to another account. */
function passwordPath(dataDir: string): string {
  return `${dataDir}.password`;
}

async function readPassword(dataDir: string): Promise<string | undefined> {
  const content = await readFile(passwordPath(dataDir), "utf8").catch(() => undefined);
  return content?.trim();
}

/** Stores the password and returns it. If a concurrent start stored one first, returns that one. */
async function storePassword(dataDir: string, password: string): Promise<string> {
  try {
    await writeFile(passwordPath(dataDir), `${password}\n`, { mode: 0o600, flag: "wx" });
    return password;
  } catch (error) {
    const first = systemErrorCode(error) === "EEXIST" ? await readPassword(dataDir) : undefined;
    if (first === undefined) throw error;
    return first;
  }
}

/** Returns a loopback port that is free at this moment. */
export function findFreePort(): Promise<number> {
  return listenOnce(0);
}

/** Returns whether this loopback port is free at this moment. */
function isPortFree(port: number): Promise<boolean> {
  return listenOnce(port).then(
    () => true,
    () => false,
  );
}

function listenOnce(requested: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(requested, "127.0.0.1", () => {
      const address = server.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      server.close(() => resolve(port));
    });
  });
}
