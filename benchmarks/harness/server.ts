import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import pg from "pg";
import { startEmbeddedPostgres } from "../../src/embedded/index.ts";

/** Durable as in production; only checkpoints are rare, because one in the middle would slow down the contender that is running. */
const SETTINGS = {
  fsync: "on",
  synchronous_commit: "on",
  full_page_writes: "on",
  checkpoint_timeout: "1h",
  max_wal_size: "16GB",
  shared_buffers: "256MB",
  max_connections: 300,
};

/** What the sessions of `Place.admin` are called. */
export const ADMIN = "bench admin";

export interface Server {
  /** An empty database of its own. */
  database(name: string): Promise<BenchDatabase>;
  stop(): Promise<void>;
}

/** A database and a pool to prepare and inspect it with; contenders open connections of their own. */
export interface BenchDatabase {
  readonly url: string;
  readonly admin: pg.Pool;
  pool(max: number): pg.Pool;
  /** Ends the pools handed out and removes the database. */
  drop(): Promise<void>;
}

export async function startServer(): Promise<Server> {
  const folder = await mkdtemp(join(tmpdir(), "sagabox-bench-"));
  const server = await startEmbeddedPostgres({
    dataDir: join(folder, "data"),
    auth: "trust",
    settings: SETTINGS,
    onNotice: () => undefined,
  });
  const admin = openPool(server.url, 2);
  let count = 0;
  let stopped: Promise<void> | undefined;
  const stop = async (): Promise<void> => {
    await admin.end();
    await server.stop();
    await rm(folder, { recursive: true, force: true });
    // As root the data lives elsewhere, where the server's own account may enter.
    await rm(dirname(server.dataDir), { recursive: true, force: true });
  };
  return {
    async database(label) {
      const name = `bench_${label}_${++count}`;
      await admin.query(`create database ${name} template template0`);
      const url = new URL(server.url);
      url.pathname = `/${name}`;
      return createDatabase(url.href, async () => {
        await admin.query(`drop database ${name} with (force)`);
      });
    },
    stop: () => (stopped ??= stop()),
  };
}

function createDatabase(url: string, remove: () => Promise<void>): BenchDatabase {
  const pools: pg.Pool[] = [];
  const open = (max: number, name?: string): pg.Pool => {
    const pool = openPool(url, max, name);
    pools.push(pool);
    return pool;
  };
  return {
    url,
    admin: open(2, ADMIN),
    pool: (max) => open(max),
    async drop() {
      await Promise.all(pools.filter((pool) => !pool.ended).map((pool) => pool.end()));
      await remove();
    },
  };
}

function openPool(connectionString: string, max: number, name = "bench"): pg.Pool {
  const pool = new pg.Pool({ connectionString, max, idleTimeoutMillis: 0, application_name: name });
  pool.on("error", () => undefined); // the database may be dropped under an idle connection
  return pool;
}
