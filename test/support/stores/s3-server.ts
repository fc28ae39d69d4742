import { createRequire } from "node:module";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

interface Server {
  run(): Promise<{ readonly port: number }>;
  close(): Promise<void>;
}

type ServerClass = new (options: {
  port: number;
  address: string;
  silent: boolean;
  directory: string;
  configureBuckets: readonly { name: string }[];
}) => Server;

// It has no types of its own.
const require = createRequire(import.meta.url);
const S3rver = require("s3rver") as ServerClass;

export interface S3Server {
  readonly endpoint: string;
  readonly bucket: string;
  /** Where it keeps its files. */
  readonly folder: string;
  stop(): Promise<void>;
}

export const s3Credentials = { accessKeyId: "S3RVER", secretAccessKey: "S3RVER" };

/** A real HTTP server that speaks S3, with one bucket, in a folder of its own. */
export async function startS3Server(): Promise<S3Server> {
  const folder = await mkdtemp(join(tmpdir(), "sagabox-s3-"));
  const bucket = "payloads";
  const server = new S3rver({
    port: 0,
    address: "127.0.0.1",
    silent: true,
    directory: folder,
    configureBuckets: [{ name: bucket }],
  });
  const { port } = await server.run();
  return {
    endpoint: `http://127.0.0.1:${port}`,
    bucket,
    folder,
    stop: async () => {
      await server.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
