import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { startCli } from "../../test/support/run-cli.ts";
import { findFreePort } from "../embedded/start-embedded-postgres.ts";

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "sagabox-dev-"));
  chmodSync(path, 0o755);
  onTestFinished(() => rmSync(path, { recursive: true }));
  return path;
}

function printedUrl(stdout: string): string {
  return /export DATABASE_URL='([^']+)'/.exec(stdout)?.[1] ?? "";
}

async function ask(url: string, sql: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(sql)).rows;
  } finally {
    await client.end();
  }
}

test(
  "dev brings a migrated database, keeps its data and leaves nothing running",
  { timeout: 90_000 },
  async () => {
    const cwd = folder();
    const first = startCli(["dev"], { cwd });
    await first.waitForOutput("Press Ctrl-C");
    const url = printedUrl(first.stdout);
    expect(first.stdout).toContain(`data in ${join(".sagabox", "postgres")}.`);
    expect(await ask(url, "select count(*)::int as n from sagabox.relay_lane")).toEqual([
      { n: expect.any(Number) },
    ]);
    const today = "to_regclass('sagabox.message_' || to_char(now() at time zone 'utc', 'YYYYMMDD'))";
    expect(await ask(url, `select ${today} is not null as made`)).toEqual([{ made: true }]);
    await ask(url, "create table mine as select 7 as n");
    first.child.kill("SIGINT");
    expect((await first.ended).code).toBe(0);
    await expect(ask(url, "select 1")).rejects.toThrow();
    expect(readFileSync(join(cwd, ".sagabox/.gitignore"), "utf8")).toBe("*\n");

    const exported = await startCli(["dev"], { cwd, env: { DATABASE_URL: url } }).ended;
    expect(exported.code).toBe(1);
    expect(exported.stderr).toMatch(
      /ECONNREFUSED.* DATABASE_URL is set, so no server was started\. To start one, run `unset DATABASE_URL` first\./,
    );

    const elsewhere = folder();
    writeFileSync(
      join(elsewhere, "app.mjs"),
      `export default {
       async run({ port, host }) { console.log("worker on " + host + " " + port + " with " + process.env.DATABASE_URL); },
       async stop() { console.log("worker stopped"); },
     };`,
    );
    const data = join(cwd, ".sagabox");
    const second = startCli(["dev", "--app", "app.mjs", "--port", "0", "--data", data], {
      cwd: elsewhere,
      env: { SAGABOX_HOST: "::1" },
    });
    await second.waitForOutput("worker on ::1 0 with postgres://");
    expect(second.stdout).toContain(`data in ${join(data, "postgres")}.`);
    expect(printedUrl(second.stdout)).toBe(url); // what was exported for the first start is still good
    expect(await ask(printedUrl(second.stdout), "select n from mine")).toEqual([{ n: 7 }]);
    second.child.kill("SIGTERM");
    const { code, stdout } = await second.ended;
    expect(code).toBe(0);
    expect(stdout).toMatch(/worker stopped\nPostgreSQL stopped/);
  },
);

test("dev starts its server on the port that is asked for, and refuses what is none", async () => {
  const cwd = folder();
  const port = await findFreePort();
  const cli = startCli(["dev", "--database-port", String(port)], { cwd });
  await cli.waitForOutput("Press Ctrl-C");
  expect(new URL(printedUrl(cli.stdout)).port).toBe(String(port));
  cli.child.kill("SIGTERM");
  expect((await cli.ended).code).toBe(0);
  const refused = await startCli(["dev", "--database-port", "0"], { cwd }).ended;
  expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining("from 1 to 65535")]);
}, 90_000);

test("dev uses the database of DATABASE_URL when there is one, and does not print its password", async () => {
  const { url } = await temporaryDatabase();
  const cwd = folder();
  const cli = startCli(["dev"], { cwd, env: { DATABASE_URL: url } });
  await cli.waitForOutput("Press Ctrl-C");
  cli.child.kill("SIGTERM");
  const { code, stdout } = await cli.ended;
  expect(code).toBe(0);
  expect(stdout).not.toContain("export DATABASE_URL");
  expect(existsSync(join(cwd, ".sagabox"))).toBe(false);
});

test(
  "a second dev that leaves takes no server away from the first, which hears when it ends by another hand",
  { timeout: 90_000 },
  async () => {
    const cwd = folder();
    const first = startCli(["dev"], { cwd });
    await first.waitForOutput("Press Ctrl-C");
    const url = printedUrl(first.stdout);
    expect(first.stdout).toContain(`data in ${join(".sagabox", "postgres")}.`);
    const second = startCli(["dev"], { cwd });
    await second.waitForOutput("Press Ctrl-C");
    second.child.kill("SIGINT");
    expect(await second.ended).toMatchObject({ code: 0 });
    expect(second.stdout).toContain("PostgreSQL keeps running, because other clients are connected.");
    expect(await ask(url, "select 7 as n")).toEqual([{ n: 7 }]);

    const [pid] = readFileSync(join(cwd, ".sagabox/postgres/postmaster.pid"), "utf8").split("\n");
    process.kill(Number(pid), "SIGINT");
    const { code, stderr } = await first.ended;
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining("The PostgreSQL server of `sagabox dev` has stopped"),
    ]);
  },
);

test("dev sql creates tables and prints rows without psql, with the server of a running dev or one of its own", async () => {
  const cwd = folder();
  const sql = (...words: string[]) => startCli(["dev", "sql", ...words], { cwd }).ended;
  expect(
    await sql("create table orders (id text, at date); insert into orders values ('order-1', null)"),
  ).toMatchObject({
    code: 0,
    stdout: "Done, no rows.\n",
  });
  const running = startCli(["dev"], { cwd });
  await running.waitForOutput("Press Ctrl-C");
  const found = await sql("select id, at, 7 as n from orders");
  expect([found.code, found.stdout]).toEqual([
    0,
    ["id       at  n", "───────  ──  ─", "order-1  –   7", ""].join("\n"),
  ]);
  expect(found.stderr).toContain("PostgreSQL keeps running");
  const wrong = await sql("select * from order_s");
  expect([wrong.code, wrong.stdout]).toEqual([1, ""]);
  expect(wrong.stderr).toContain('relation "order_s" does not exist');
  expect(await sql("select 1", "select 2")).toMatchObject({ code: 2 });
  expect(await startCli(["dev", "slq", "select 1"], { cwd }).ended).toMatchObject({ code: 2 });
  running.child.kill("SIGINT");
  expect(await running.ended).toMatchObject({ code: 0 });
}, 90_000);
