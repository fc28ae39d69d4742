import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdtempSync, rmSync, statSync, writeFileSync, mkdirSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { isRoot } from "./account.ts";
import { startEmbeddedPostgres, type EmbeddedPostgres, type EmbeddedPostgresOptions } from "./index.ts";
import { isPostgresProcess } from "./server-process.ts";

/** A folder the server's account can enter, removed after the test. */
function folder(mode = 0o755): string {
  const path = mkdtempSync(join(tmpdir(), "sagabox-embedded-"));
  chmodSync(path, mode);
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

async function start(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres(options);
  onTestFinished(() => server.stop());
  return server;
}

async function query(url: string, sql: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query({ text: sql, rowMode: "array" })).rows.flat();
  } finally {
    await client.end();
  }
}

test("a started server answers, decodes its log, and listens on loopback only", async () => {
  const server = await start({ dataDir: join(folder(), "data"), settings: { max_connections: 23 } });
  expect(await query(server.url, "show wal_level")).toEqual(["logical"]);
  expect(await query(server.url, "show search_path")).toEqual(["public"]);
  expect(await query(server.url, "show listen_addresses")).toEqual(["127.0.0.1"]);
  expect(await query(server.url, "show max_connections")).toEqual(["23"]);
  expect(server.reused).toBe(false);
});

test("a connection without the password is refused, and the password lies in a file only its owner reads", async () => {
  const server = await start({ dataDir: join(folder(), "data") });
  const withoutPassword = server.url.replace(/:[0-9a-f]{32}@/, "@");
  expect(withoutPassword).not.toBe(server.url);
  await expect(query(withoutPassword, "select 1")).rejects.toThrow(/password/);
  expect(statSync(`${server.dataDir}.password`).mode & 0o777).toBe(0o600);
  expect(statSync(server.dataDir).mode & 0o777).toBe(0o700);
});

test("a chosen password opens the server and is written to no file", async () => {
  const server = await start({ dataDir: join(folder(), "data"), password: "a/b c" });
  expect(await query(server.url, "select 1")).toEqual([1]);
  expect(existsSync(`${server.dataDir}.password`)).toBe(false);
});

test("a second start uses the running server", async () => {
  const dataDir = join(folder(), "data");
  const first = await start({ dataDir });
  const second = await start({ dataDir });
  expect(second).toMatchObject({ reused: true, pid: first.pid, port: first.port, url: first.url });
});

test("two starts at once on a new folder share one server", async () => {
  const dataDir = join(folder(), "data");
  const [one, other] = await Promise.all([start({ dataDir }), start({ dataDir })]);
  expect(other.url).toBe(one.url);
  expect([one.reused, other.reused].filter(Boolean)).toHaveLength(1);
  expect(await query(other.url, "select 1")).toEqual([1]);
});

test("stopping leaves no process behind, and stopping again is harmless", async () => {
  const server = await start({ dataDir: join(folder(), "data"), auth: "trust" });
  await server.stop();
  await server.stop();
  expect(isPostgresProcess(server.pid)).toBe(false);
  expect(existsSync(join(server.dataDir, "postmaster.pid"))).toBe(false);
  await expect(query(server.url, "select 1")).rejects.toThrow("ECONNREFUSED");
});

test("a server whose data was removed under it is stopped all the same", async () => {
  const server = await start({ dataDir: join(folder(), "data"), auth: "trust" });
  rmSync(server.dataDir, { recursive: true });
  await server.stop();
  expect(isPostgresProcess(server.pid)).toBe(false);
});

test("data survives a stop, and the password stays the same", async () => {
  const dataDir = join(folder(), "data");
  const first = await start({ dataDir });
  await query(first.url, "create table kept as select 42 as answer");
  await first.stop();
  const second = await start({ dataDir });
  expect(second.reused).toBe(false);
  expect(await query(second.url, "select answer from kept")).toEqual([42]);
});

test("the port stays the same from start to start, unless somebody has taken it meanwhile", async () => {
  const dataDir = join(folder(), "data");
  const first = await start({ dataDir, auth: "trust" });
  await first.stop();
  const second = await start({ dataDir });
  expect(second.port).toBe(first.port);
  await second.stop();
  const other = createServer().listen(first.port, "127.0.0.1");
  onTestFinished(() => void other.close());
  await once(other, "listening");
  const third = await start({ dataDir });
  expect(third.port).not.toBe(first.port);
  expect(await query(third.url, "select 1")).toEqual([1]);
});

test("what was committed survives a crash of the server", async () => {
  const server = await start({ dataDir: join(folder(), "data"), auth: "trust" });
  await query(server.url, "create table kept as select 42 as answer");
  const before = server.pid;
  await server.restart("immediate");
  expect(server.pid).not.toBe(before);
  expect(await query(server.url, "select answer from kept")).toEqual([42]);
});

test("a crashed server is down until it is restarted", async () => {
  const server = await start({ dataDir: join(folder(), "data"), auth: "trust" });
  await server.killImmediately();
  await expect(query(server.url, "select 1")).rejects.toThrow("ECONNREFUSED");
  await server.restart();
  expect(await query(server.url, "select 1")).toEqual([1]);
});

test("the server outlives a killed process and the next start finds it", async () => {
  const dataDir = join(folder(), "data");
  const script = `import { startEmbeddedPostgres } from "./src/embedded/index.ts";
    console.log((await startEmbeddedPostgres({ dataDir: ${JSON.stringify(dataDir)} })).pid);
    setInterval(() => undefined, 1000);`;
  const child = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "-e", script]);
  const pid = await new Promise<number>((resolve) => {
    child.stdout.once("data", (line: Buffer) => resolve(Number(line.toString())));
  });
  const gone = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGKILL");
  await gone;
  const server = await start({ dataDir });
  expect(server).toMatchObject({ reused: true, pid });
});

test("data the server's account cannot reach is kept elsewhere, and a notice says where", async () => {
  const notices: string[] = [];
  const dataDir = join(folder(0o700), "data");
  // Registered before the start, hence run after the stop.
  const made: string[] = [];
  onTestFinished(() => made.forEach((path) => rmSync(path, { recursive: true, force: true })));
  const server = await start({ dataDir, onNotice: (text) => notices.push(text) });
  expect(await query(server.url, "select 1")).toEqual([1]);
  if (isRoot()) {
    made.push(dirname(server.dataDir));
    expect(notices.join()).toContain(server.dataDir);
    expect(server.dataDir).not.toBe(dataDir);
  } else {
    expect(notices).toEqual([]);
    expect(server.dataDir).toBe(dataDir);
  }
});

test("a server that cannot start says why, with the end of its log", async () => {
  const settings = { shared_buffers: "a lot" };
  await expect(startEmbeddedPostgres({ dataDir: join(folder(), "data"), settings })).rejects.toMatchObject({
    code: "EMBEDDED_POSTGRES_FAILED",
    message: expect.stringMatching(/did not start: ended with code 1[^]*invalid value for parameter/),
  });
});

test("a folder with other people's files is refused and left as it is", async () => {
  const dataDir = join(folder(), "data");
  mkdirSync(dataDir);
  writeFileSync(join(dataDir, "letter.txt"), "dear friend");
  await expect(startEmbeddedPostgres({ dataDir })).rejects.toThrow("not PostgreSQL data");
  expect(existsSync(join(dataDir, "letter.txt"))).toBe(true);
});

test("data of another major version is refused with both versions named", async () => {
  const dataDir = join(folder(), "data");
  mkdirSync(dataDir);
  writeFileSync(join(dataDir, "PG_VERSION"), "9\n");
  await expect(startEmbeddedPostgres({ dataDir })).rejects.toThrow(/made by PostgreSQL 9, .* version \d+/);
});

test("a server that is not ready in time is ended again", async () => {
  const dataDir = join(folder(), "data");
  const first = await start({ dataDir, auth: "trust" });
  await first.stop();
  await expect(startEmbeddedPostgres({ dataDir, readyTimeout: "1ms" })).rejects.toThrow(
    "not ready after 1 ms",
  );
  expect(existsSync(join(dataDir, "postmaster.pid"))).toBe(false);
});
