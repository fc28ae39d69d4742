import { expect, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { runBuiltCli } from "../../test/support/run-cli.ts";
import { migrations } from "../storage/migrations.generated.ts";

test(
  "ten migrations started at once all exit with 0, and each step is applied by one of them",
  { timeout: 60_000 },
  async () => {
    const { url } = await temporaryDatabase();
    const env = { DATABASE_URL: url };
    const runs = await Promise.all(
      Array.from({ length: 10 }, () => runBuiltCli(["migrate", "up", "--json"], { env })),
    );
    expect(runs.map((run) => [run.code, run.stderr])).toEqual(runs.map(() => [0, ""]));
    const applied = runs.flatMap((run) => (JSON.parse(run.stdout) as { applied: unknown[] }).applied);
    expect(applied).toHaveLength(migrations.length);
  },
);

test("G12: status shows what is pending, then what was applied and when", async () => {
  const { url } = await temporaryDatabase();
  const env = { DATABASE_URL: url };
  const before = await runBuiltCli(["migrate", "status"], { env });
  expect(before.stdout).toMatch(/^version +name +breaking +applied at\n.*\n1 +messages +false +pending\n/);
  expect(before.stdout).toMatch(/\n\d+ pending in schema "sagabox"\. Apply them: sagabox migrate up\n$/);
  expect(before.code).toBe(3);
  const up = await runBuiltCli(["migrate", "up"], { env });
  expect(up).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('Applied 1 messages to schema "sagabox".'),
  });
  const again = await runBuiltCli(["migrate", "up"], { env });
  expect(again.stdout).toBe('Schema "sagabox" is up to date.\n');
  const after = await runBuiltCli(["migrate", "status", "--json"], { env });
  const status = JSON.parse(after.stdout) as { applied: object[]; pending: object[] };
  expect([after.code, status.pending]).toEqual([0, []]);
  expect(status.applied[0]).toMatchObject({
    version: 1,
    name: "messages",
    appliedAt: expect.any(String),
  });
});

test("G12: up makes the partitions of the next days too, so that none is attached while somebody publishes", async () => {
  const { url, pool } = await temporaryDatabase();
  expect((await runBuiltCli(["migrate", "up"], { env: { DATABASE_URL: url } })).code).toBe(0);
  const { rows } = await pool.query<{ today: string | null }>(
    "select to_regclass('sagabox.message_' || to_char(now() at time zone 'utc', 'YYYYMMDD'))::text as today",
  );
  expect(rows[0]?.today).toMatch(/message_\d{8}$/);
});

test("G12: the printed SQL makes the schema it was asked for", async () => {
  const { url, pool } = await temporaryDatabase();
  const { code, stdout } = await runBuiltCli(["migrate", "sql", "--schema", "shop"]);
  expect(code).toBe(0);
  await pool.query(stdout);
  const status = await runBuiltCli(["migrate", "status", "--json"], {
    env: { DATABASE_URL: url, SAGABOX_SCHEMA: "shop" },
  });
  expect(JSON.parse(status.stdout)).toMatchObject({ schema: "shop", pending: [] });
});

test("a database that cannot be reached is told without the password", async () => {
  const env = { DATABASE_URL: "postgres://app:canary-12@127.0.0.1:1/x" };
  const { code, stdout, stderr } = await runBuiltCli(["migrate", "up"], { env });
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toMatch(/cannot be reached.*ECONNREFUSED.*STORAGE_UNAVAILABLE/);
  expect(stderr).not.toContain("canary-12");
});

test("an address that is none is refused without being repeated", async () => {
  const { code, stderr } = await runBuiltCli(["migrate", "up"], { env: { DATABASE_URL: "canary-13 at db" } });
  expect(code).toBe(2);
  expect(stderr).toContain("DATABASE_URL");
  expect(stderr).not.toContain("canary-13");
});

test("no address at all is told with the two ways out", async () => {
  const { code, stderr } = await runBuiltCli(["migrate", "status"]);
  expect(code).toBe(2);
  expect(stderr).toMatch(/DATABASE_URL is not set.*sagabox dev/);
});

test.each(["pg_evil", "Upper", 'a"; drop schema public; --', "", "1st"])(
  "the schema name %j is refused",
  async (name) => {
    const { url } = await temporaryDatabase();
    const { code, stderr } = await runBuiltCli(["migrate", "up", `--schema=${name}`], {
      env: { DATABASE_URL: url },
    });
    expect(code).toBe(2);
    expect(stderr).toContain("SCHEMA_NAME_INVALID");
  },
);

test("a schema made by a newer breaking version is refused with 1 and its escapes are not obeyed", async () => {
  const { url, pool } = await temporaryDatabase();
  const env = { DATABASE_URL: url };
  await runBuiltCli(["migrate", "up"], { env });
  await pool.query("insert into sagabox.schema_migration values (999, E'evil\\x1b[2J', true, 'x')");
  const { code, stderr } = await runBuiltCli(["migrate", "up"], { env });
  expect(code).toBe(1);
  expect(stderr).toContain("STORAGE_TOO_NEW");
  expect(stderr).not.toContain("\u001b");
});

test("a role without rights is told what is missing", async () => {
  const { url, pool, name } = await temporaryDatabase();
  await pool.query(`create role weak_${name} login password 'x'`);
  const weak = new URL(url);
  [weak.username, weak.password] = [`weak_${name}`, "x"];
  const { code, stderr } = await runBuiltCli(["migrate", "up"], { env: { DATABASE_URL: weak.href } });
  await pool.query(`drop role weak_${name}`);
  expect(code).toBe(1);
  expect(stderr).toContain("STORAGE_PERMISSION_DENIED");
});
