import { readFileSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { embeddedFailure } from "./run-program.ts";

/** The account PostgreSQL runs as if this process is root, because PostgreSQL refuses to run as root. */
export interface ServerAccount {
  readonly uid: number;
  readonly gid: number;
}

export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/** Returns the account for the server; undefined means the current one. Existing data keeps its owner. */
export function findServerAccount(dataDir: string, passwdFile = "/etc/passwd"): ServerAccount | undefined {
  if (!isRoot()) return undefined;
  const owner = statSync(dataDir, { throwIfNoEntry: false });
  if (owner !== undefined && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid };
  const accounts = readFileSync(passwdFile, "utf8").split("\n");
  for (const name of ["postgres", "nobody"]) {
    const [, , uid, gid] = accounts.find((line) => line.startsWith(`${name}:`))?.split(":") ?? [];
    if (uid !== undefined && gid !== undefined) return { uid: Number(uid), gid: Number(gid) };
  }
  throw embeddedFailure(
    "PostgreSQL refuses to run as root, and there is no account postgres or nobody to run it as. " +
      "Run as a normal user, or set DATABASE_URL to a server you run.",
  );
}

/** Whether the account may pass through every folder above `path`, judged by the permission bits. */
export function canReach(path: string, account: ServerAccount | undefined): boolean {
  if (account === undefined) return true;
  for (let folder = dirname(path); ; folder = dirname(folder)) {
    const stat = statSync(folder, { throwIfNoEntry: false });
    if (stat !== undefined && !mayEnter(stat, account)) return false;
    if (folder === dirname(folder)) return true;
  }
}

function mayEnter(folder: { uid: number; gid: number; mode: number }, account: ServerAccount): boolean {
  if (folder.uid === account.uid) return (folder.mode & 0o100) !== 0;
  if (folder.gid === account.gid) return (folder.mode & 0o010) !== 0;
  return (folder.mode & 0o001) !== 0;
}
