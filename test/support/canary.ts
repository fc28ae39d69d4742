import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type pg from "pg";

/** Texts that occur nowhere else on this machine. */
export function newCanaries() {
  const mark = (what: string): string => `${what}${randomBytes(9).toString("hex")}`;
  return { email: mark("canary-mail-"), iban: mark("canary-iban-"), guest: mark("canary-guest-") };
}

/** Which of the texts are in the files below a folder, as bytes. */
export function foundInFiles(
  folder: string,
  texts: readonly string[],
  wanted: (path: string) => boolean = () => true,
): Set<string> {
  const found = new Set<string>();
  const needles = texts.map((text) => ({ text, bytes: Buffer.from(text) }));
  for (const path of filesBelow(folder)) {
    if (!wanted(path)) continue;
    const content = readIfThere(path);
    for (const { text, bytes } of needles) if (content.includes(bytes)) found.add(text);
  }
  return found;
}

// Servers rename and delete their files while we look.
export function filesBelow(folder: string): string[] {
  const entries = ifThere(() => readdirSync(folder, { withFileTypes: true })) ?? [];
  return entries.flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return filesBelow(path);
    return entry.isFile() ? [path] : [];
  });
}

export function readIfThere(path: string): Buffer {
  return ifThere(() => readFileSync(path)) ?? Buffer.alloc(0);
}

function ifThere<T>(look: () => T): T | undefined {
  try {
    return look();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** The files in which the server keeps this database and what was written to its log since `lsn`. */
export async function databaseFiles(
  pool: pg.Pool,
  lsn: string,
): Promise<{ readonly folder: string; readonly isOurs: (path: string) => boolean }> {
  await pool.query("checkpoint");
  const { rows } = await pool.query<{ folder: string; oid: string; first: string; last: string }>(
    `select current_setting('data_directory') as folder, pg_walfile_name($1::pg_lsn) as first,
            pg_walfile_name(pg_current_wal_lsn()) as last,
            (select oid::text from pg_database where datname = current_database()) as oid`,
    [lsn],
  );
  const [{ folder, oid, first, last }] = rows as [(typeof rows)[number]];
  const isOurs = (path: string): boolean => {
    if (path.startsWith(join(folder, "base", oid))) return true;
    const segment = /pg_wal\/([0-9A-F]{24})$/.exec(path)?.[1];
    return segment !== undefined && segment >= first && segment <= last;
  };
  return { folder, isOurs };
}
