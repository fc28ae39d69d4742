import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { chown, chmod, mkdir, readdir, rename, rm, rmdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { randomToken } from "../runtime/index.ts";
import { canReach, type ServerAccount } from "./account.ts";
import type { Binaries } from "./binaries.ts";
import { embeddedFailure, runProgram } from "./run-program.ts";
import { sharedTemporaryFolder } from "./native-files.ts";

export const SUPERUSER = "sagabox";

/** Returns the requested folder, or one under the temporary folder if the account of the server cannot enter it. */
export function findReachableDataDir(
  requested: string,
  account: ServerAccount | undefined,
  onNotice: (text: string) => void,
): string {
  if (canReach(requested, account)) return requested;
  const digest = createHash("sha256").update(requested).digest("hex").slice(0, 16);
  const dataDir = join(sharedTemporaryFolder(account), `sagabox-data-${digest}`, "data");
  onNotice(
    `PostgreSQL, not running as root, cannot enter ${requested}. Its data is kept in ${dataDir} instead.`,
  );
  return dataDir;
}

export function isInitialised(dataDir: string): boolean {
  return existsSync(join(dataDir, "PG_VERSION"));
}

/** Throws if the data was written by another major version, which the server cannot read. */
export function checkVersion(dataDir: string, binaries: Binaries): void {
  const version = Number(readFileSync(join(dataDir, "PG_VERSION"), "utf8"));
  if (version === binaries.majorVersion) return;
  throw embeddedFailure(
    `${dataDir} was made by PostgreSQL ${version}, but the programs found are version ${binaries.majorVersion}. ` +
      "Remove the folder if its data is not needed, or choose another dataDir.",
  );
}

/**
 * Creates a new cluster under a temporary name and renames it when complete. A start that dies midway leaves nothing
 * that looks like data, and of two concurrent starts both use the cluster that was renamed first.
 */
export async function initialise(
  dataDir: string,
  binaries: Binaries,
  account: ServerAccount | undefined,
  password: string | undefined,
): Promise<void> {
  await refuseForeignContent(dataDir);
  const draft = `${dataDir}.new-${randomToken()}`;
  try {
    await makePrivateFolder(draft, account);
    await runInitdb(
      join(draft, "data"),
      binaries,
      account,
      await writePasswordFile(draft, account, password),
    );
    await moveIntoPlace(join(draft, "data"), dataDir);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

async function refuseForeignContent(dataDir: string): Promise<void> {
  const content = await readdir(dataDir).catch(() => []);
  if (content.length === 0) return;
  throw embeddedFailure(`${dataDir} holds files that are not PostgreSQL data. Choose another dataDir.`);
}

async function makePrivateFolder(folder: string, account: ServerAccount | undefined): Promise<void> {
  await mkdir(folder, { mode: 0o700 });
  if (account !== undefined) await chown(folder, account.uid, account.gid);
}

async function writePasswordFile(
  folder: string,
  account: ServerAccount | undefined,
  password: string | undefined,
): Promise<string | undefined> {
  if (password === undefined) return undefined;
  const path = join(folder, "password");
  await writeFile(path, `${password}\n`, { mode: 0o600 });
  if (account !== undefined) await chown(path, account.uid, account.gid);
  return path;
}

async function runInitdb(
  dataDir: string,
  binaries: Binaries,
  account: ServerAccount | undefined,
  pwfile: string | undefined,
): Promise<void> {
  const auth = pwfile === undefined ? ["--auth=trust"] : ["--auth=scram-sha-256", `--pwfile=${pwfile}`];
  const args = ["-D", dataDir, "-U", SUPERUSER, "--encoding=UTF8", "--locale=C", "--no-sync", ...auth];
  const { exitCode, output, error } = await runProgram(join(binaries.binDir, "initdb"), args, account);
  if (exitCode !== 0)
    throw embeddedFailure(`initdb failed for ${dataDir}: ${error?.message ?? output}`, error);
}

async function moveIntoPlace(made: string, dataDir: string): Promise<void> {
  // Remove an empty folder, which may have another owner and mode.
  await rmdir(dataDir).catch(() => undefined);
  await rename(made, dataDir).catch((error: unknown) => {
    if (!isInitialised(dataDir)) throw error;
  });
  await chmod(dataDir, 0o700);
}
