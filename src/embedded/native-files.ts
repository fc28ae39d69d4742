import { existsSync } from "node:fs";
import { chmod, cp, lstat, readFile, readdir, rename, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { randomToken } from "../runtime/index.ts";
import { canReach, type ServerAccount } from "./account.ts";
import { embeddedFailure, systemErrorCode } from "./run-program.ts";

interface SymlinkEntry {
  readonly source: string;
  readonly target: string;
}

/** Creates the library links that the install script creates, because npm can be configured to skip scripts. */
export async function makeLinks(nativeDir: string): Promise<void> {
  const listFile = join(nativeDir, "pg-symlinks.json");
  if (!existsSync(listFile)) return;
  const entries = JSON.parse(await readFile(listFile, "utf8")) as SymlinkEntry[];
  for (const { source, target } of entries) {
    const path = join(dirname(nativeDir), target);
    if (existsSync(path)) continue;
    await symlink(relative(dirname(target), source), path).catch((error: unknown) => {
      if (systemErrorCode(error) !== "EEXIST") throw error;
    });
  }
}

/** Returns a temporary folder that the account can enter; TMPDIR may be private to another user. */
export function sharedTemporaryFolder(account: ServerAccount | undefined): string {
  return canReach(join(tmpdir(), "file"), account) ? tmpdir() : "/tmp";
}

/** Copies the binaries to a folder the account can read, once per version. Later starts reuse the copy. */
export async function copyNativeFiles(
  nativeDir: string,
  version: string,
  account: ServerAccount | undefined,
): Promise<string> {
  const name = `sagabox-postgres-${version}-${process.platform}-${process.arch}-${process.getuid?.() ?? 0}`;
  const home = join(sharedTemporaryFolder(account), name);
  const copy = join(home, "native");
  if (existsSync(home)) {
    await refuseForeignFolder(home);
    return copy;
  }
  // Copy under a temporary name, so that a start that dies midway leaves no incomplete copy.
  const draft = `${home}.${randomToken()}`;
  // Keep relative links; resolved links would point to the folder that the account cannot enter.
  await cp(nativeDir, join(draft, "native"), { recursive: true, verbatimSymlinks: true });
  await makeLinks(join(draft, "native"));
  await openForReading(draft);
  await rename(draft, home).catch(async (error: unknown) => {
    await rm(draft, { recursive: true, force: true });
    if (!existsSync(home)) throw error;
  });
  await refuseForeignFolder(home);
  return copy;
}

/** Throws unless this user owns the folder and others cannot write to it: any user can create one in /tmp. */
export async function refuseForeignFolder(folder: string): Promise<void> {
  const stat = await lstat(folder);
  const ours = stat.uid === (process.getuid?.() ?? stat.uid);
  if (stat.isDirectory() && ours && (stat.mode & 0o022) === 0) return;
  throw embeddedFailure(
    `${folder} belongs to another user or can be written by others. Remove it and retry.`,
  );
}

async function openForReading(path: string): Promise<void> {
  const stat = await lstat(path);
  if (stat.isSymbolicLink()) return;
  await chmod(path, (stat.mode & 0o100) === 0 ? 0o644 : 0o755);
  if (!stat.isDirectory()) return;
  for (const entry of await readdir(path)) await openForReading(join(path, entry));
}
