import { createServer, type AddressInfo } from "node:net";
import { expect, onTestFinished, test, vi } from "vitest";
import {
  cliHarness,
  cliSamples,
  runSample,
  sampleFiles,
  type CliSample,
  type CliOutput,
} from "../../test/support/cli-harness.ts";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { rolesHarness } from "../../test/support/roles-harness.ts";
import { allCommands } from "./run-cli.ts";
import { dryRunOption, yesOption } from "./confirm.ts";

const commands = await allCommands();
const actions = commands.flatMap(({ name, actions: all = [] }) =>
  all.map((action) => [name, action] as const),
);

vi.setConfig({ testTimeout: 120_000 });

/** All samples that fit, one after the other. */
async function each(
  fits: (sample: CliSample) => boolean,
  work: (name: string, sample: CliSample) => Promise<void>,
): Promise<void> {
  for (const { name } of commands) {
    for (const sample of cliSamples[name] ?? []) if (fits(sample)) await work(name, sample);
  }
}

function expectOneLine({ line, code, stderr }: CliOutput, text: RegExp): void {
  expect(stderr, line).toMatch(text);
  expect(stderr.trimEnd().split("\n"), line).toHaveLength(1);
  expect(code, line).toBe(1);
}

test("every action of every command is tried here (otherwise: add it to test/support/cli-samples.ts)", () => {
  const tried = (name: string): readonly CliSample[] => cliSamples[name] ?? [];
  expect(commands.filter(({ name }) => tried(name).length === 0).map(({ name }) => name)).toEqual([]);
  const untried = actions.filter(([name, action]) => !tried(name).some(({ argv }) => argv[0] === action));
  expect(untried).toEqual([]);
});

test("the usage of a command names each of its actions, and nothing that it cannot do", () => {
  for (const { name, usage, actions: all = [] } of commands) {
    const named = usage.flatMap((line) => /^\S+ ([a-z][a-z|-]*)(?: |$)/.exec(line)?.[1]?.split("|") ?? []);
    expect([...new Set(named)].sort(), name).toEqual([...all].sort());
  }
});

test.each(commands.map((command) => [command.name]))("sagabox %s --help shows an example", async (name) => {
  const told = await cliInProcess([name, "--help"], {});
  expect(told).toMatchObject({ code: 0, stderr: "" });
  expect(told.stdout).toMatch(new RegExp(`^Examples?:\\n(  .*\\n)*  .*sagabox ${name}\\b`, "m"));
  expect(told.stdout.split("\n").filter((line) => line.length > 130)).toEqual([]);
});

test.each(commands.map((command) => [command.name, command] as const))(
  "sagabox %s says in one line that an option lacks its value, or takes none",
  async (name, { options }) => {
    for (const [option, { type, alone }] of Object.entries(options)) {
      if (alone !== undefined) continue;
      const wrong = type === "string" ? [`--${option}`, "-1"] : [`--${option}=1`];
      const { code, stderr } = await cliInProcess([name, ...wrong], {});
      const told =
        type === "string"
          ? `needs a value for --${option}. Write a value that begins with a dash as --${option}=<value>.`
          : `takes no value for --${option}.`;
      expect(stderr).toBe(`sagabox: "sagabox ${name}" ${told}\nRun \`sagabox help ${name}\` for help.\n`);
      expect(code).toBe(2);
      if (type !== "string") continue;
      expect((await cliInProcess([name, `--${option}`], {})).stderr).toMatch(
        new RegExp(`^sagabox: "sagabox ${name}" needs a value for --${option}\\.\\n`),
      );
    }
  },
);

test.each(actions)("sagabox %s %s --help shows an example of it", async (name, action) => {
  const told = await cliInProcess([name, action, "--help"], {});
  expect(told).toMatchObject({ code: 0, stderr: "" });
  expect(told.stdout).toMatch(
    new RegExp(`^Examples?:\\n(  .*\\n)*  .*sagabox ${name} ${action}(?: |\\)|$)`, "m"),
  );
});

test("a database that cannot be reached is told in one line, with exit code 1", async () => {
  const closed = "postgres://u:secret@127.0.0.1:1/x";
  const fill = sampleFiles();
  await each(
    (sample) => sample.withoutDatabase !== true,
    async (name, sample) => {
      const told = await runSample(name, sample, { url: closed, fill });
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
  const fill = sampleFiles();
  await each(
    (sample) => sample.withoutDatabase !== true && sample.makesSchema !== true,
    async (name, sample) => {
      expectOneLine(
        await runSample(name, sample, { url, fill }),
        /^sagabox: .*`sagabox migrate up`.*\[STORAGE_NOT_MIGRATED\]$/m,
      );
    },
  );
});

test("a schema that is older or newer than the command is told in one line, and left alone", async () => {
  const { url, pool } = await temporaryDatabase({ migrated: true });
  const fill = sampleFiles();
  const fits = ({ withoutDatabase, makesSchema, ownProcess }: CliSample) =>
    withoutDatabase !== true && makesSchema !== true && ownProcess !== true;
  await pool.query(
    "delete from sagabox.schema_migration where version = (select max(version) from sagabox.schema_migration)",
  );
  await each(fits, async (name, sample) => {
    expectOneLine(
      await runSample(name, sample, { url, fill }),
      /^sagabox: .*`sagabox migrate up`.*\[STORAGE_NOT_MIGRATED\]$/m,
    );
  });
  await pool.query(
    "insert into sagabox.schema_migration (version, name, breaking, checksum) values (9999, 'later', true, 'x')",
  );
  await each(fits, async (name, sample) => {
    expectOneLine(
      await runSample(name, sample, { url, fill }),
      /^sagabox: .*Deploy a newer version; nothing was changed\. \[STORAGE_TOO_NEW\]$/m,
    );
  });
});

test("a role without rights is told in one line that names the role it needs, with exit code 1", async () => {
  const { login } = await rolesHarness();
  const url = await login();
  const fill = sampleFiles();
  await each(
    (sample) => sample.withoutDatabase !== true,
    async (name, sample) => {
      const told = await runSample(name, sample, { url, fill });
      expectOneLine(
        told,
        /^sagabox: .* role.*(`sagabox roles sql`|may not create schemas).*\[STORAGE_PERMISSION_DENIED\]$/m,
      );
    },
  );
});

test("who may only look is told in one line which role an action needs, and nothing is done", async () => {
  const { login, fill, count } = await cliHarness();
  const url = await login("viewer");
  const before = await count("audit_log");
  await each(
    ({ withoutDatabase, makesSchema, viewer }) =>
      withoutDatabase !== true && makesSchema !== true && viewer !== true,
    async (name, sample) => {
      expectOneLine(
        await runSample(name, sample, { url, fill }),
        /^sagabox: .*(?:needs|member of) the \w+ role.*`sagabox roles sql`.*\[STORAGE_PERMISSION_DENIED\]$/m,
      );
    },
  );
  expect(await count("audit_log")).toBe(before);
  await each(
    ({ viewer }) => viewer === true,
    async (name, sample) => {
      const told = await runSample(name, sample, { url, fill });
      expect(told.stderr, told.line).toBe("");
      expect([0, 3], told.line).toContain(told.code);
    },
  );
});

test("what takes --yes is refused with 2 in a script without it, empty runs too, and nothing is done", async () => {
  const { url, fill, count } = await cliHarness();
  const before = await count("audit_log");
  await each(
    ({ argv }) => argv.includes("--yes") && argv[1] !== "<letter-replayed>", // one letter is replayed at once
    async (name, sample) => {
      const argv = sample.argv.filter((word) => word !== "--yes");
      const told = await runSample(name, { ...sample, argv }, { url, fill });
      expect(told, told.line).toMatchObject({ code: 2, stdout: "" });
      expect(told.stderr, told.line).toMatch(/Nothing was done: add --yes to confirm\./);
    },
  );
  expect(await count("audit_log")).toBe(before);
});

test("--yes and --dry-run mean the same wherever they are taken", () => {
  for (const { name, options } of commands) {
    expect([undefined, yesOption], name).toContain(options["yes"]);
    expect([undefined, dryRunOption], name).toContain(options["dry-run"]);
  }
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
    expectOneLine(await runSample("status", { argv: [] }, { url: wrong, fill: {} }), text);
    expectOneLine(await runSample("privacy", { argv: ["status"] }, { url: wrong, fill: {} }), text);
  }
});

test("a server that takes the connection and never answers is given up within seconds", async () => {
  let connections = 0;
  const server = createServer(() => (connections += 1)).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo;
  const url = `postgres://u@127.0.0.1:${port}/x`;
  const told = await runSample("status", { argv: [] }, { url, fill: {} });
  // One attempt of ten seconds: how long the command took also depends on what else the machine does.
  expectOneLine(told, /cannot be reached.*no answer within 10000 ms/);
  expect(connections).toBe(1);
});
