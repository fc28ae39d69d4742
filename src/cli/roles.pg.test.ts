import pg from "pg";
import { expect, inject, onTestFinished, test } from "vitest";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { roleNames } from "../admin/index.ts";

async function setup() {
  const made: string[] = [];
  onTestFinished(async () => {
    const admin = new pg.Client({ connectionString: inject("postgresUrl") });
    await admin.connect();
    for (const role of made.toReversed()) await admin.query(`drop role if exists "${role}"`);
    await admin.end();
  });
  const database = await temporaryDatabase({ migrated: true });
  const prefix = `${database.name}_`;
  made.push(...roleNames.map((name) => prefix + name));
  const cli = (...args: string[]) => cliInProcess(["roles", ...args], {});
  return { ...database, prefix, made, cli };
}

test("G10: what roles sql prints runs as it is, twice, and needs no database to be printed", async () => {
  const { pool, prefix, cli } = await setup();
  const { code, stdout, stderr } = await cli("sql", "--prefix", prefix);
  expect([code, stderr]).toEqual([0, ""]);
  for (const _ of [1, 2]) await pool.query(stdout);
  const { rows } = await pool.query<{ login: boolean }>(
    "select rolcanlogin as login from pg_roles where starts_with(rolname, $1)",
    [prefix],
  );
  expect(rows).toEqual(roleNames.map(() => ({ login: false })));
});

test("G10: a role that is no superuser but may create roles and owns the schema can run it", async () => {
  const { pool, url, prefix, made, cli } = await setup();
  const admin = `${prefix}admin`;
  made.unshift(admin);
  await pool.query(
    `create role "${admin}" login createrole password 'x'; grant create on database "${new URL(url).pathname.slice(1)}" to "${admin}"`,
  );
  const address = new URL(url);
  [address.username, address.password] = [admin, "x"];
  const migrated = await cliInProcess(["migrate", "up", "--schema", "mine"], { DATABASE_URL: address.href });
  expect(migrated).toMatchObject({ code: 0 });
  const { stdout } = await cli("sql", "--schema", "mine", "--prefix", prefix);
  const own = new pg.Client({ connectionString: address.href });
  await own.connect();
  onTestFinished(() => own.end());
  for (const _ of [1, 2]) await own.query(stdout);
  const { rows } = await pool.query(
    "select distinct tableowner as owner from pg_tables where schemaname = 'mine'",
  );
  expect(rows).toEqual([{ owner: `${prefix}owner` }]);
  const again = await cliInProcess(["migrate", "up", "--schema", "mine"], { DATABASE_URL: address.href });
  expect(again).toMatchObject({ code: 0, stdout: 'Schema "mine" is up to date.\n' });
});

test("roles sql tells the names as JSON, and gives writers more only when asked", async () => {
  const { cli } = await setup();
  const plain = JSON.parse((await cli("sql", "--json", "--schema", "x")).stdout) as {
    roles: string[];
    sql: string;
  };
  expect(plain).toMatchObject({ schema: "x", roles: roleNames.map((name) => `sagabox_${name}`) });
  const more = await cli("sql", "--with-optimistic-send", "--with-overflow");
  const deletes = /^grant .*delete on table "\w+"."outbox" to "sagabox_writer";$/m;
  expect(plain.sql).not.toMatch(deletes);
  expect(more.stdout).toMatch(deletes);
});

test.each([
  [[], "needs sql"],
  [["sgl"], "Did you mean sql?"],
  [["sql", "x"], "takes no further argument"],
  [["sql", "--prefix", "Bad"], "is not usable"],
  [["sql", "--schema", "pg_x"], "is not usable"],
])("roles %j is refused with a hint", async (args, says) => {
  const { code, stderr } = await cliInProcess(["roles", ...args], {});
  expect([code, stderr]).toEqual([2, expect.stringContaining(says)]);
});

test("help shows each role and an example", async () => {
  const { code, stdout } = await cliInProcess(["help", "roles"], {});
  expect(code).toBe(0);
  for (const name of roleNames) expect(stdout).toContain(`  ${name} `);
  expect(stdout).toContain('sagabox roles sql | psql "$DATABASE_URL"');
});
