// The code in docs/guides/publish-from-sql.md is cut from examples/guides; here it runs.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { createBus, event, type Bus, type BusOptions } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { OrderPlaced } from "../../examples/guides/contracts.ts";
import { temporaryDatabase, type TemporaryDatabase } from "../support/database.ts";
import { Registered, subjectsBus, subjectsDatabase, ada } from "../support/data-subjects.ts";
import { rolesHarness } from "../support/roles-harness.ts";

vi.setConfig({ testTimeout: 60_000 });

const guides = join(import.meta.dirname, "../../examples/guides");
const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

interface Handled {
  readonly id: string;
  readonly orderId: string;
  readonly source: string;
  readonly traceId: string;
}

/** A worker that handles orders, and what it has handled. */
async function setup(options: Partial<BusOptions> = {}) {
  const database = await temporaryDatabase({ migrated: true });
  const { bus, handled } = await worker(database, options);
  return { ...database, bus, handled };
}

async function worker({ pool }: Pick<TemporaryDatabase, "pool">, options: Partial<BusOptions> = {}) {
  const bus = createBus({ service: "billing", database: pool, log: false, ...options });
  onTestFinished(async () => void (await bus.stop()));
  const handled: Handled[] = [];
  bus.on(OrderPlaced, { consumer: "billing" }, ({ id, data, source, traceparent }) => {
    handled.push({ id, orderId: data.orderId, source, traceId: traceparent.slice(3, 35) });
  });
  await bus.run();
  return { bus, handled };
}

const waitFor = { timeout: 30_000 };

test("psql publishes from a trigger, with a delay, and once per id", async (context) => {
  const { url, pool, handled } = await setup();
  const psql = (): ReturnType<typeof run> =>
    run("psql", ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", join(guides, "publish-from-sql.sql"), url]);
  const first = psql();
  if (first === undefined)
    return context.skip("psql is not installed (Debian and Ubuntu: apt-get install postgresql-client)");
  expect(first).toMatchObject({ status: 0, stderr: "" });
  // The trigger publishes each import as well, under an id of its own.
  const placed = ["from-psql", "import-1", "import-1", "import-2", "import-2", "import-3", "import-3"];
  await expect.poll(() => handled.map(({ orderId }) => orderId).toSorted(), waitFor).toEqual(placed);
  expect(handled.filter(({ id }) => id.startsWith("import:"))).toHaveLength(3);
  const { rows } = await pool.query(
    "select key, headers, due_at - written_at = interval '15 minutes' as later from sagabox.scheduled",
  );
  expect(rows).toEqual([{ key: "delayed", headers: '{"tenant":"a"}', later: true }]);
  const again = await pool.query<{ id: string | null }>(
    `select sagabox.publish(type => 'guide.order.placed', data => '{}', id => 'import:import-1') as id`,
  );
  expect(again.rows).toEqual([{ id: null }]);
});

test("Python publishes in its own transaction, and the handler sees its service and its trace", async (context) => {
  const psycopg = findPsycopg();
  if (typeof psycopg === "string") return context.skip(psycopg);
  const { url, pool, handled } = await setup();
  await pool.query("create table guide_python_order (id text primary key, cents integer not null)");
  const program = [join(guides, "publish_from_sql.py"), "o-1", "1250", parent];
  const place = () => run("python3", program, { ...psycopg, DATABASE_URL: url });
  const placed = place();
  expect(placed).toMatchObject({ status: 0, stderr: "" });
  const id = placed?.stdout.trim() ?? "";
  await expect
    .poll(() => handled, waitFor)
    .toEqual([{ id, orderId: "o-1", source: "importer", traceId: parent.slice(3, 35) }]);
  // The second order breaks the primary key, so its transaction publishes nothing.
  expect(place()?.status).not.toBe(0);
  const { rows } = await pool.query("select count(*)::int as n from sagabox.message");
  expect(rows).toEqual([{ n: 1 }]);
});

interface Finished {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program to its end. Returns undefined if it is not installed. */
function run(
  program: string,
  words: readonly string[],
  env: NodeJS.ProcessEnv = {},
  timeout = 30_000,
): Finished | undefined {
  const done = spawnSync(program, words, { encoding: "utf8", env: { ...process.env, ...env }, timeout });
  return done.error !== undefined && "code" in done.error && done.error.code === "ENOENT" ? undefined : done;
}

/** Returns the environment of a Python with psycopg, installed into a temporary folder if need be, in a bounded time. */
function findPsycopg(): NodeJS.ProcessEnv | string {
  const look = (env: NodeJS.ProcessEnv): Finished | undefined =>
    run("python3", ["-c", "import psycopg"], env, 5_000);
  const found = look({});
  if (found === undefined) return "python3 is not installed";
  if (found.status === 0) return {};
  const folder = mkdtempSync(join(tmpdir(), "sagabox-psycopg-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const install = [
    "-m",
    "pip",
    "install",
    "--quiet",
    "--no-compile",
    "--target",
    folder,
    "psycopg[binary]==3.3.9",
  ];
  run("python3", install, { PIP_RETRIES: "0" }, 15_000);
  const env = { PYTHONPATH: folder };
  return look(env)?.status === 0 ? env : "psycopg cannot be installed (pip install 'psycopg[binary]')";
}

test("SEC-35: a role that may only publish needs no right on a table, also in a trigger", async () => {
  const harness = await rolesHarness();
  await harness.pool.query("create table shop_order (id text primary key)");
  const publisher = await harness.as("publisher");
  const call = "select sagabox.publish(type => 'guide.order.placed', key => 'o', data => '{}') as id";
  await harness.pool.query("grant insert on shop_order to public");
  await harness.pool.query(
    `create function announce() returns trigger language plpgsql as $$
     begin perform sagabox.publish(type => 'guide.order.placed', key => new.id, data => to_jsonb(new)); return null; end $$;
     create trigger announce after insert on shop_order for each row execute function announce()`,
  );
  await publisher.query(call);
  await publisher.query("insert into shop_order values ('o-1')");
  await publisher.query("select sagabox.wake_relays()");
  expect(await harness.count("outbox")).toBe(2);
  // A message names the login, although the function runs as the owner of the schema.
  const { rows } = await harness.pool.query<{ source: string }>(
    "select distinct source from sagabox.message",
  );
  expect(rows.map(({ source }) => source)).toEqual([expect.stringContaining("login")]);
  for (const sql of [
    "select 1 from sagabox.message",
    "insert into sagabox.published_id values ('a', 'today')",
    "select sagabox.publish_hash('a')",
    "select sagabox.has_message('a')",
  ])
    await expect(publisher.query(sql), sql).rejects.toMatchObject({ code: "42501" });
  const writer = await harness.as("writer");
  await writer.query(call);
  for (const role of ["relay", "viewer", "operator"] as const)
    await expect((await harness.as(role)).query(call), role).rejects.toMatchObject({ code: "42501" });
  await expect((await harness.as()).query(call)).rejects.toMatchObject({ code: "42501" });
});

test("data that the contract does not allow become a dead letter of the consumer", async () => {
  const { pool, bus } = await setup();
  await pool.query(
    "select sagabox.publish(type => 'guide.order.placed', key => 'o', data => '{\"orderId\": 1}')",
  );
  await expect.poll(async () => bus.deadLetters.list(), waitFor).toMatchObject([{ consumer: "billing" }]);
});

const publishPerson = `select sagabox.publish(type => 'people.registered', key => 'gold', data => '{"email": "a@b.example"}') as id`;
const refused = {
  code: "22023",
  detail: "PRIVACY_KEYS_MISSING",
  message: expect.stringContaining("personal fields"),
};

test("SEC-39: a type with personal fields is refused once a worker that handles it has started", async () => {
  const database = await subjectsDatabase();
  const start = async (
    options: Partial<BusOptions> = {},
    contract: Parameters<Bus["on"]>[0] = Registered,
  ): Promise<void> => {
    const bus = subjectsBus(database, options);
    bus.on(contract, { consumer: "crm" }, () => undefined);
    await bus.run();
    await bus.stop();
  };
  const { pool } = database;
  await pool.query(publishPerson); // not known yet
  await start();
  await expect(pool.query(publishPerson)).rejects.toMatchObject(refused);
  const plain = event("people.registered", { schema: z.object({ email: z.string() }) });
  await start({ service: "other" }, plain); // another service cannot allow it
  await expect(pool.query(publishPerson)).rejects.toMatchObject(refused);
  await start({}, plain);
  await pool.query(publishPerson);
});

test("SEC-39: a type with personal fields is refused soon after bus.publish wrote one, without a worker", async () => {
  const database = await subjectsDatabase();
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query("begin");
  await subjectsBus(database).publish(client, Registered, ada);
  await expect
    .poll(
      async () => (await database.pool.query("select type, service, fields from sagabox.personal_type")).rows,
      waitFor,
    )
    .toEqual([
      {
        type: "people.registered",
        service: "people",
        fields: ["email", "address", "guests.*.name", "phone"],
      },
    ]);
  await client.query("rollback"); // the type stays known
  await expect(database.pool.query(publishPerson)).rejects.toMatchObject(refused);
});

test("a bus that may not write the list of personal types still publishes", async () => {
  const database = await subjectsDatabase();
  await database.pool.query("drop table sagabox.personal_type");
  const bus = subjectsBus(database);
  const { id } = await bus.transaction((tx) => tx.publish(Registered, ada));
  const { rows } = await database.pool.query("select id from sagabox.message");
  expect(rows).toEqual([{ id }]);
});

test("the function works in a schema of another name, quoted or not", async () => {
  const { pool, bus: _ } = await setup();
  const other = createBus({ service: "b", database: pool, schema: "select", log: false });
  onTestFinished(async () => void (await other.stop()));
  await other.migrate();
  const listener = await pool.connect();
  const heard: string[] = [];
  listener.on("notification", ({ channel }) => heard.push(channel));
  await listener.query("listen sagabox_select");
  await pool.query(
    `select "select".publish(type => 'a', data => '{}'), "select".publish(type => 'a', data => '{}', delay => '1 hour')`,
  );
  await pool.query(`select "select".wake_relays()`);
  await expect.poll(() => heard, waitFor).toEqual(["sagabox_select"]);
  listener.release(true);
  const { rows } = await pool.query(
    `select (select count(*) from "select".outbox)::int as now, (select count(*) from "select".scheduled)::int as later`,
  );
  expect(rows).toEqual([{ now: 1, later: 1 }]);
});

test("the guide lists every parameter with its default", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  const { rows } = await pool.query<{ list: string }>(
    "select pg_get_function_arguments('sagabox.publish'::regproc) as list",
  );
  const declared = (rows[0]?.list ?? "").split(", ").map((one) => {
    const [, name, type, value] = /^(\S+) (.+?)(?: DEFAULT (.+?)(?:::[\w ]+)?)?$/.exec(one) ?? [];
    return `${name} ${short[type ?? ""] ?? type} ${value === undefined ? "required" : value.replace(/^NULL$/, "").replaceAll("'", "")}`.trim();
  });
  const guide = readFileSync(join(guides, "../../docs/guides/publish-from-sql.md"), "utf8");
  const listed = [...guide.matchAll(/^\| `(\w+)`\s*\| (\w+)\s*\| (.*?)\s*\|/gm)].map(
    ([, name, type, value = ""]) => `${name} ${type} ${value.replaceAll("`", "")}`.trim(),
  );
  expect(listed.toSorted()).toEqual(declared.toSorted());
});

const short: Readonly<Record<string, string>> = { "timestamp with time zone": "timestamptz" };
