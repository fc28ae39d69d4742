import { randomBytes } from "node:crypto";
import { createServer, type AddressInfo } from "node:net";
import { expect, onTestFinished, test, vi } from "vitest";
import { cliInProcess } from "../../test/support/cli-in-process.ts";
import { cliSamples, type CliSample } from "../../test/support/cli-samples.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { rolesHouse } from "../../test/support/roles-house.ts";
import { runCli } from "../../test/support/run-cli.ts";
import { allCommands } from "./commands.ts";

const commands = await allCommands();

vi.setConfig({ testTimeout: 120_000 });

const keyRing = ["first", "index"].map((name) => `${name} ${randomBytes(32).toString("base64")}`).join("\n");

interface Told {
  readonly line: string;
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

async function run(name: string, sample: CliSample, url: string, ...more: string[]): Promise<Told> {
  const argv = [name, ...sample.argv, ...more];
  const env = { DATABASE_URL: url, SAGABOX_KEY_RING: keyRing, USER: "ann" };
  const told = sample.ownProcess === true ? await runCli(argv, { env }) : await cliInProcess(argv, env);
  return { line: `sagabox ${argv.join(" ")}`, ...told };
}

/** All samples that fit, one after the other. */
async function each(
  fits: (sample: CliSample) => boolean,
  work: (name: string, sample: CliSample) => Promise<void>,
): Promise<void> {
  for (const { name } of commands) {
    for (const sample of cliSamples[name] ?? []) if (fits(sample)) await work(name, sample);
  }
}

function expectOneLine({ line, code, stderr }: Told, text: RegExp): void {
  expect(stderr, line).toMatch(text);
  expect(stderr.trimEnd().split("\n"), line).toHaveLength(1);
  expect(code, line).toBe(1);
}

test("every command is tried here (otherwise: add it to test/support/cli-samples.ts)", () => {
  const untried = commands.filter(({ name }) => (cliSamples[name] ?? []).length === 0);
  expect(untried.map(({ name }) => name)).toEqual([]);
});

test.each(commands.map((command) => [command.name]))("sagabox %s --help shows an example", async (name) => {
  const told = await cliInProcess([name, "--help"], {});
  expect(told).toMatchObject({ code: 0, stderr: "" });
  expect(told.stdout).toMatch(new RegExp(`^Examples?:\\n(  .*\\n)*  .*sagabox ${name}\\b`, "m"));
  expect(told.stdout.split("\n").filter((line) => line.length > 130)).toEqual([]);
});

test("a database that cannot be reached is told in one line, with exit code 1", async () => {
  const closed = "postgres://u:secret@127.0.0.1:1/x";
  await each(
    (sample) => sample.withoutDatabase !== true,
    async (name, sample) => {
      const told = await run(name, sample, closed);
      expectOneLine(
        told,
        /^sagabox: The database cannot be reached; .*ECONNREFUSED.*\[STORAGE_UNAVAILABLE\]$/m,
      );
      expect(told.stderr).not.toContain("secret");
    },
  );
});

test("a schema that is not migrated is told in one line that names the remedy, with exit code 1", async () => {
  const { url } = await temporaryDatabase();
  await each(
    (sample) => sample.withoutDatabase !== true && sample.makesSchema !== true,
    async (name, sample) => {
      expectOneLine(
        await run(name, sample, url),
        /^sagabox: .*`sagabox migrate up`.*\[STORAGE_NOT_MIGRATED\]$/m,
      );
    },
  );
});

test("a schema that is older or newer than the command is told in one line, and left alone", async () => {
  const { url, pool } = await temporaryDatabase({ migrated: true });
  const fits = ({ withoutDatabase, makesSchema, ownProcess }: CliSample) =>
    withoutDatabase !== true && makesSchema !== true && ownProcess !== true;
  await pool.query(
    "delete from sagabox.schema_migration where version = (select max(version) from sagabox.schema_migration)",
  );
  await each(fits, async (name, sample) => {
    expectOneLine(
      await run(name, sample, url),
      /^sagabox: .*`sagabox migrate up`.*\[STORAGE_NOT_MIGRATED\]$/m,
    );
  });
  await pool.query(
    "insert into sagabox.schema_migration (version, name, breaking, checksum) values (9999, 'later', true, 'x')",
  );
  await each(fits, async (name, sample) => {
    expectOneLine(
      await run(name, sample, url),
      /^sagabox: .*Deploy a newer version; nothing was changed\. \[STORAGE_TOO_NEW\]$/m,
    );
  });
});

test("a role without rights is told in one line that names the role it needs, with exit code 1", async () => {
  const { login } = await rolesHouse();
  const url = await login();
  await each(
    (sample) => sample.withoutDatabase !== true,
    async (name, sample) => {
      const told = await run(name, sample, url);
      expectOneLine(
        told,
        /^sagabox: .* role.*(`sagabox roles sql`|may not create schemas).*\[STORAGE_PERMISSION_DENIED\]$/m,
      );
    },
  );
});

test("what prints data prints JSON with --json", async () => {
  const { url } = await temporaryDatabase({ migrated: true });
  await each(
    ({ silent, findsNothing, slow }) => silent !== true && findsNothing !== true && slow !== true,
    async (name, sample) => {
      const told = await run(name, sample, url, "--json");
      expect(told.stderr, told.line).toBe("");
      expect([0, 3], told.line).toContain(told.code);
      expect(JSON.parse(told.stdout), told.line).toBeTypeOf("object");
    },
  );
});

test("what is wrong with the address of the database is told in one line", async () => {
  const { url } = await temporaryDatabase({ migrated: true });
  const changed = (change: (address: URL) => void): string => {
    const address = new URL(url);
    change(address);
    return address.href;
  };
  for (const [wrong, text] of [
    [changed((address) => (address.pathname = "/nowhere")), /does not exist/],
    [
      changed((address) => (address.username = "nobody_at_all")),
      /role "nobody_at_all" does not exist|refused the login/,
    ],
    [
      changed((address) => (address.hostname = "no-such-host.invalid")),
      /cannot be reached.*no-such-host\.invalid/,
    ],
  ] as const) {
    expectOneLine(await run("status", { argv: [] }, wrong), text);
    expectOneLine(await run("privacy", { argv: ["status"] }, wrong), text);
  }
});

test("a server that takes the connection and never answers is given up within seconds", async () => {
  const server = createServer(() => undefined).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo;
  const beganMs = performance.now();
  const told = await run("status", { argv: [] }, `postgres://u@127.0.0.1:${port}/x`);
  expectOneLine(told, /cannot be reached.*no answer within/);
  expect(performance.now() - beganMs).toBeLessThan(15_000);
});
