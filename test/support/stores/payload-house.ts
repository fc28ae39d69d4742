import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createBus, type BusOptions } from "sagabox";
import { onTestFinished } from "vitest";
import { temporaryDatabase } from "../database.ts";
import { RecordingObserver } from "../recording-observer.ts";

/** A bus with a database of its own, and what tests of large payloads look at. */
export async function payloadHouse(options: Partial<BusOptions> = {}) {
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
