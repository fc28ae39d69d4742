import { writeFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { startEmbeddedPostgres, type EmbeddedPostgres } from "../../src/embedded/index.ts";
import { baseBackup, own } from "./base-backup.ts";
import type { Wire } from "./wire.ts";

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
