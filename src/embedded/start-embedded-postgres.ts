import { mkdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname } from "node:path";
import { randomToken } from "../runtime/index.ts";
import { findServerAccount } from "./account.ts";
import { findBinaries, fromFolder } from "./binaries.ts";
import { checkVersion, findReachableDataDir, initialise, isInitialised } from "./data-folder.ts";
import { EmbeddedPostgres } from "./embedded-postgres.ts";
import { embeddedFailure, systemErrorCode } from "./failure.ts";
import { refuseForeignFolder } from "./native-files.ts";
import { type EmbeddedPostgresOptions, readEmbeddedPostgresSettings } from "./options.ts";
import { findRunningServer, launchServer, type ServerPlan } from "./server-process.ts";

const ATTEMPTS = 3;

/**
 * Starts a PostgreSQL server on a data folder, or finds the one already running there. It listens on loopback
 * only and can decode its log (`wal_level=logical`). As root it runs under the account postgres or nobody.
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
    // Kept before the cluster is made: of two starts at once, both then use the password of the first.
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
  wishedPort: number | undefined,
  password: string | undefined,
): Promise<EmbeddedPostgres> {
  for (let attempt = 1; ; attempt += 1) {
    const found = await findRunningServer(plan.dataDir, plan.readyTimeoutMs);
    if (found !== undefined) {
      return new EmbeddedPostgres({ ...plan, port: found.port }, { pid: found.pid, reused: true, password });
    }
    try {
      const port = wishedPort ?? (await findPort(plan.dataDir));
      const pid = await launchServer({ ...plan, port });
      await storePort(plan.dataDir, port);
      return new EmbeddedPostgres({ ...plan, port }, { pid, reused: false, password });
    } catch (error) {
      if (attempt === ATTEMPTS || !isPortOrFolderTaken(error)) throw error;
    }
  }
}

// Somebody took the port, or started a server on the same data, between our look and our start.
function isPortOrFolderTaken(error: unknown): boolean {
  return (
    error instanceof Error && /Address already in use|postmaster\.pid" already exists/.test(error.message)
  );
}

// Beside the data rather than in it, like the password: the data may belong to another account.
const portPath = (dataDir: string): string => `${dataDir}.port`;

/** The port of the last start on this data if nobody has taken it since, so that an address once given stays good. */
async function findPort(dataDir: string): Promise<number> {
  const last = Number(await readFile(portPath(dataDir), "utf8").catch(() => ""));
  const isPort = Number.isInteger(last) && last > 0 && last <= 65_535;
  return isPort && (await isPortFree(last)) ? last : findFreePort();
}

/** For the next start. A server that runs is not given up because this cannot be written down. */
async function storePort(dataDir: string, port: number): Promise<void> {
  await writeFile(portPath(dataDir), `${port}\n`).catch(() => undefined);
}

/** Kept beside the data rather than in it: it belongs to the person, the data may belong to another account. */
function passwordPath(dataDir: string): string {
  return `${dataDir}.password`;
}

async function readPassword(dataDir: string): Promise<string | undefined> {
  const content = await readFile(passwordPath(dataDir), "utf8").catch(() => undefined);
  return content?.trim();
}

/** Keeps the password, unless another start was first: then that one counts and is returned. */
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

/** A loopback port nobody listens on at this moment. */
export function findFreePort(): Promise<number> {
  return listenOnce(0);
}

/** Whether nobody listens on this loopback port at this moment. */
function isPortFree(port: number): Promise<boolean> {
  return listenOnce(port).then(
    () => true,
    () => false,
  );
}

function listenOnce(wished: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(wished, "127.0.0.1", () => {
      const address = server.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      server.close(() => resolve(port));
    });
  });
}
