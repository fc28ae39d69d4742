import { mkdtemp, readdir, rename, rm, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type pg from "pg";
import { createBus, type BusOptions } from "sagabox";
import { onTestFinished } from "vitest";
import { temporaryDatabase } from "../database.ts";
import { RecordingObserver } from "../recording-observer.ts";

/** A bus with a database of its own, and what tests of large payloads look at. */
export async function payloadHarness(options: Partial<BusOptions> = {}) {
  const { pool, url } = await temporaryDatabase({ migrated: true });
  const observer = new RecordingObserver();
  const open = (more: Partial<BusOptions> = {}) => {
    const bus = createBus({
      service: "plans",
      database: pool,
      log: false,
      observers: [observer],
      ...options,
      ...more,
    });
    onTestFinished(async () => void (await bus.stop()));
    return bus;
  };
  const count = async (table: string): Promise<number> =>
    Number((await pool.query<{ n: string }>(`select count(*) as n from sagabox.${table}`)).rows[0]?.n);
  const counts = async () => ({
    blob: await count("blob"),
    use: await count("blob_use"),
    chunk: await count("blob_chunk"),
  });
  /** As if everything had happened so many days earlier: archive, dead letters and sagas are gone by then. */
  const age = async (days: number): Promise<void> => {
    await pool.query(`update sagabox.blob set stored_at = stored_at - interval '${days} days'`);
    await pool.query(`update sagabox.blob_use set used_at = used_at - interval '${days} days'`);
  };
  return { pool, url, observer, open, bus: open(), counts, age };
}

export async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "sagabox-payloads-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** The files below a folder, by their paths. */
export async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
}

/** As if the files had been written so long ago. */
export async function ageFiles(folder: string, hours: number): Promise<void> {
  const then = new Date(Date.now() - hours * 3_600_000);
  for (const file of await filesIn(folder)) await utimes(file, then, then);
}

/** As if all in a folder had been stored a day earlier: the day is part of each key, and after midnight it is another one. */
export async function aDayEarlier(pool: pg.Pool, folder: string): Promise<void> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const days = entries.filter((entry) => entry.isDirectory() && /^\d{4}-\d\d-\d\d$/.test(entry.name));
  for (const { parentPath, name } of days) {
    const before = new Date(Date.parse(name) - 86_400_000).toISOString().slice(0, 10);
    await rename(join(parentPath, name), join(parentPath, before));
    // What refers to a key is renamed with it, which no constraint could follow.
    await pool.query(
      `begin;
       set local session_replication_role = replica;
       update sagabox.blob set key = replace(key, '/${name}/', '/${before}/');
       update sagabox.blob_use set key = replace(key, '/${name}/', '/${before}/');
       commit`,
    );
  }
  await ageFiles(folder, 24);
}
