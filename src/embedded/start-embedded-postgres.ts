import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { randomToken } from "../runtime/index.ts";
import { findServerAccount } from "./account.ts";
import { findBinaries, fromFolder } from "./binaries.ts";
import { checkVersion, initialise, isInitialised, findReachableDataDir } from "./data-folder.ts";
import { EmbeddedPostgres } from "./embedded-postgres.ts";
import { embeddedFailure } from "./failure.ts";
import { readEmbeddedPostgresSettings, type EmbeddedPostgresOptions } from "./options.ts";
import { refuseForeignFolder } from "./native-files.ts";
import { storePassword, readPassword } from "./password-file.ts";
import { storePort, findPort } from "./port-file.ts";
import { launchServer, findRunningServer, type ServerPlan } from "./server-process.ts";

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
