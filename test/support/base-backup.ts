import { chownSync, copyFileSync, lstatSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { startEmbeddedPostgres, type EmbeddedPostgres } from "../../src/embedded/index.ts";
import type { Wire } from "./wire.ts";

// What a server makes anew at its start, or must not find there.
const leftBehind = ["postmaster.pid", "postmaster.opts", "pg_wal", "pg_replslot", "pg_stat_tmp"];

/**
 * A base backup of a running server, as pg_basebackup takes one: between start and stop the files are copied while they
 * change, and the log that was written meanwhile makes them whole at the next start. It begins when the promise is made
 * and is consistent as of its end.
 */
export async function baseBackup(
  url: string,
  from: string,
  to: string,
  meanwhile: () => Promise<void>,
): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query("select pg_backup_start('test', true)");
    copyFolder(from, to, leftBehind);
    for (const folder of ["pg_wal", "pg_replslot", "pg_stat_tmp"])
      copyFolder(join(from, folder), join(to, folder), ["*"]);
    await meanwhile();
    const { rows } = await client.query<{ labelfile: string }>("select labelfile from pg_backup_stop(false)");
    await client.query("select pg_switch_wal()");
    copyFolder(join(from, "pg_wal"), join(to, "pg_wal"), []);
    const label = join(to, "backup_label");
    writeFileSync(label, rows[0]?.labelfile ?? "");
    own(from, label);
  } finally {
    await client.end();
  }
}

function copyFolder(from: string, to: string, without: readonly string[]): void {
  mkdirSync(to, { recursive: true, mode: 0o700 });
  own(from, to);
  if (without.includes("*")) return;
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    if (without.includes(entry.name)) continue;
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) copyFolder(source, target, []);
    else if (entry.isFile()) copyFile(source, target);
  }
}

// The server removes files while we copy; the log knows what became of them.
function copyFile(from: string, to: string): void {
  try {
    copyFileSync(from, to);
    own(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}

/** As root the server runs under another account, which must be able to write to its copy. */
export function own(like: string, path: string): void {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = lstatSync(like);
  chownSync(path, uid, gid);
}

/** A server that follows the log of another one over this wire, as it is kept for a fail-over. */
export async function startStandby(
  primary: EmbeddedPostgres,
  dataDir: string,
  replication: Wire,
): Promise<EmbeddedPostgres> {
  await baseBackup(primary.url, primary.dataDir, dataDir, () => Promise.resolve());
  const signal = join(dataDir, "standby.signal");
  writeFileSync(signal, "");
  own(primary.dataDir, signal);
  const { username } = new URL(primary.url);
  return startEmbeddedPostgres({
    dataDir,
    auth: "trust",
    settings: {
      fsync: "off",
      primary_conninfo: `host=127.0.0.1 port=${replication.port} user=${username}`,
    },
  });
}

/** Makes it a primary. It resolves when the server takes writes. */
export async function promote({ url }: EmbeddedPostgres): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query("select pg_promote()");
  } finally {
    await client.end();
  }
}
