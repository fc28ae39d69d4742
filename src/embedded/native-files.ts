import { existsSync } from "node:fs";
import { chmod, cp, lstat, readFile, readdir, rename, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { randomToken } from "../runtime/index.ts";
import { canReach, type ServerAccount } from "./account.ts";
import { embeddedFailure, systemErrorCode } from "./failure.ts";

interface SymlinkEntry {
  readonly source: string;
  readonly target: string;
}

/** Makes the library links an install script would have made; npm may be told not to run those. */
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

/** A temporary folder the account can get to; TMPDIR may be a private one. */
export function sharedTemporaryFolder(account: ServerAccount | undefined): string {
  return canReach(join(tmpdir(), "file"), account) ? tmpdir() : "/tmp";
}

/** Copies the binaries to a place the account can read. Made once per version; later starts find it. */
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
  // Copied under another name first: a start that dies half-way must not leave half a server behind.
  const draft = `${home}.${randomToken()}`;
  // Links stay as they are written; resolved ones would lead back to the folder that cannot be reached.
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

/** Anybody may create a folder in the temporary one; we run programs from it only when it is ours alone. */
export async function refuseForeignFolder(folder: string): Promise<void> {
  const stat = await lstat(folder);
  const ours = stat.uid === (process.getuid?.() ?? stat.uid);
  if (stat.isDirectory() && ours && (stat.mode & 0o022) === 0) return;
  throw embeddedFailure(
    `${folder} belongs to somebody else or can be written by others. Remove it and retry.`,
  );
}

async function openForReading(path: string): Promise<void> {
  const stat = await lstat(path);
  if (stat.isSymbolicLink()) return;
  await chmod(path, (stat.mode & 0o100) === 0 ? 0o644 : 0o755);
  if (!stat.isDirectory()) return;
  for (const entry of await readdir(path)) await openForReading(join(path, entry));
}
