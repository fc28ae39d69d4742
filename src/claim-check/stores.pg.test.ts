import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, onTestFinished } from "vitest";
import { pgDatabase } from "../storage/index.ts";
import { createDatabase, type TemporaryDatabase } from "../../test/support/database.ts";
import { exerciseStore } from "../../test/support/stores/exercise-store.ts";
import { s3Credentials, startS3Server, type S3Server } from "../../test/support/stores/s3-server.ts";
import { fileStore } from "./file-store.ts";
import { postgresStore } from "./postgres-store.ts";
import { s3Store } from "./s3/s3-store.ts";

let database: TemporaryDatabase;
let server: S3Server;
const local = postgresStore();

beforeAll(async () => {
  database = await createDatabase({ migrated: true });
  local.attach({ database: pgDatabase(database.pool), schema: "sagabox" });
  server = await startS3Server();
});
afterAll(async () => {
  await database.drop();
  await server.stop();
});

exerciseStore("postgres", async () => local);

exerciseStore("files", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sagabox-files-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return fileStore({ folder: join(folder, "made", "when", "needed") });
});

exerciseStore("s3", async () => {
  const { endpoint, bucket } = server;
  return s3Store({ bucket, endpoint, region: "us-east-1", prefix: "a/b/", credentials: s3Credentials });
});
