// The commands of package.json that must work on a fresh clone, where nothing is installed yet.
// This file therefore uses nothing but Node.
import { spawn } from "node:child_process";
import { existsSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
// ORMs and frameworks have a lock file of their own: only their tests install them.
const stack = join(root, "test", "stack");
const [task = "", ...rest] = process.argv.slice(2);

// Failures are printed again at the very end, where a person looks first.
const reports = [];
let count = 0;
const reporters = () => {
  const report = join(tmpdir(), `sagabox-report-${process.pid}-${++count}.json`);
  reports.push(report);
  return ["--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
};

const run = {
  typecheck: async (say) =>
    (await tool("typescript/bin/tsc", ["-p", "tsconfig.json"], { say })) ||
    (await tool("typescript/bin/tsc", ["-p", "ui/tsconfig.json"], { say })),
  lint: (say) => tool("oxlint/bin/oxlint", ["--type-aware", "--deny-warnings"], { say }),
  format: (say) => tool("prettier/bin/prettier.cjs", ["--check", "--log-level", "warn", "."], { say }),
  knip: (say) => tool("knip/bin/knip.js", [], { say }),
  vitest: (args, options) => tool("vitest/vitest.mjs", ["run", ...args, ...reporters()], options),
};

// Two of these keep one core busy, two all of them: none waits for another.
const readers = [
  ["types compile", run.typecheck],
  ["lint", run.lint],
  ["formatting", run.format],
  ["no dead code", run.knip],
];
const rooms = ["rooms and written rules", () => run.vitest(projects("architecture"))];
const check = [readers, rooms];

// Each broker is a server of its own, and is left out with the reason where there is none to start. They mostly wait for
// their brokers, so they wait together.
const brokers = ["rabbitmq", "kafka", "nats"];
const transports = (say) =>
  together(brokers.map((name) => run.vitest([...projects(name), "src/transports"], { say })));
const stories = () => together([...brokers, "ops"].map((name) => run.vitest(projects(name))));

const stackTests = ["ORMs and frameworks", () => withStack(() => run.vitest(projects("stack")))];
const proof = ["proof, quick", (say) => run.vitest(projects("proof"), { say, env: { TEST_PROOF: "quick" } })];
// The engine on the oldest server it is promised for; all versions in between are for the workflow.
const engine = ["storage", "lanes", "outbox", "inbox", "dead-letter", "transports/postgres"].map(
  (room) => `src/${room}/`,
);
const oldest = [
  "the engine on PostgreSQL 14",
  () =>
    run.vitest([...projects("postgres"), ...engine, "test/plans/"], {
      env: { TEST_POSTGRES: "14" },
    }),
];
// On a fresh clone this takes ten minutes: enough for the promises of every transport, alongside processes
// that mostly wait for their leases. What types promise is read by the compiler already. The tests of brokers and of the
// files for operators run with TEST_REQUIRE=all.
const everything =
  process.env.TEST_REQUIRE === "all"
    ? [
        ...check,
        tests("unit", "types", "postgres"),
        oldest,
        ["brokers and ops files", stories],
        stackTests,
        proof,
      ]
    : [...check, tests("unit", "postgres"), [["what transports promise", transports], proof]];

const tasks = {
  start: () => node(["--import", "tsx", "--conditions=sagabox:source", "scripts/demo.ts", ...rest]),
  sagabox: () => node(["--import", "tsx", "--conditions=sagabox:source", "scripts/sagabox.mjs", ...rest]),
  "demo:incident": () =>
    node(["--import", "tsx", "--conditions=sagabox:source", "scripts/demo-incident.ts", ...rest]),
  check: () => steps(check),
  test: () => {
    if (rest.length === 0) return steps(everything);
    return rest.includes("stack") ? withStack(() => run.vitest(rest)) : run.vitest(rest);
  },
  proof: () =>
    withStack(() => run.vitest([...projects("proof", "stack"), ...rest], { env: { TEST_PROOF: "full" } })),
  coverage: () =>
    run.vitest(["--coverage", ...projects("unit", "postgres", "rabbitmq", "kafka", "nats"), ...rest]),
};

const chosen = Object.hasOwn(tasks, task) ? tasks[task] : undefined;
if (chosen === undefined) {
  console.error(`Unknown task "${task}". Known: ${Object.keys(tasks).join(", ")}.`);
  process.exit(2);
}
const installed = await installWhenNeeded(root);
process.exit(installed === 0 ? await chosen() : installed);

function tests(...names) {
  return ["tests", () => run.vitest(projects(...names))];
}

function projects(...names) {
  return names.flatMap((name) => ["--project", name]);
}

// Every step runs, even after a failure: one run reports everything that is wrong. A list of steps runs at once.
async function steps(list) {
  const startedMs = performance.now();
  const results = [];
  for (const step of list) {
    const isList = Array.isArray(step[0]);
    console.log(`\n── ${isList ? `side by side: ${step.map(([name]) => name).join(", ")}` : step[0]}`);
    for (const running of isList ? step.map(quietly) : [outcome(step)]) {
      const { printed, ...result } = await running;
      if (isList) process.stdout.write(`\n── ${result.name}\n${printed}`);
      results.push({ ...result, failures: failures() });
    }
  }
  console.log("\n── summary");
  for (const result of results) {
    console.log(`${result.passed ? "passed" : "FAILED"}  ${result.name} (${result.seconds} s)`);
    for (const failure of result.failures) console.log(`        ${failure}`);
  }
  const failed = results.filter((result) => !result.passed).length;
  const verdict = failed === 0 ? "All steps passed" : `${failed} of ${results.length} steps failed`;
  console.log(`${verdict}, ${seconds(startedMs)} s in total.`);
  return failed === 0 ? 0 : 1;
}

// Keeps the output until it is the step's turn to print.
async function quietly(step) {
  let printed = "";
  const result = await outcome(step, (text) => (printed += text));
  return { ...result, printed };
}

async function outcome([name, action], say) {
  const startedMs = performance.now();
  const code = await action(say);
  return { name, passed: code === 0, seconds: seconds(startedMs) };
}

async function together(running) {
  return Math.max(...(await Promise.all(running)));
}

// Of those that are written; what runs beside has yet to write its own.
function failures() {
  const written = reports.filter((report) => existsSync(report));
  for (const report of written) reports.splice(reports.indexOf(report), 1);
  return written.flatMap(failuresIn);
}

function failuresIn(report) {
  const { testResults } = JSON.parse(readFileSync(report, "utf8"));
  rmSync(report);
  return testResults.flatMap(({ name, message, assertionResults }) => {
    const failed = assertionResults.filter(({ status }) => status === "failed");
    const lines = failed.map(
      (test) => `${relative(root, name)}: ${test.title}: ${firstLine(test.failureMessages[0])}`,
    );
    return lines.length === 0 && message ? [`${relative(root, name)}: ${firstLine(message)}`] : lines;
  });
}

function firstLine(text = "") {
  return text.split("\n")[0].slice(0, 200);
}

function seconds(sinceMs) {
  return ((performance.now() - sinceMs) / 1000).toFixed(1);
}

async function installWhenNeeded(folder, ...flags) {
  const reason = whyInstall(folder);
  if (reason === undefined) return 0;
  const hidden = Number(process.versions.node.split(".")[0]) < 22 ? " Notices about Node 22 are hidden." : "";
  console.log(`Installing dependencies with "npm ci", because ${reason}.${hidden}`);
  const npm = process.env.npm_execpath;
  // On Node 20 npm would warn of packages that only tests use and that declare Node 22; CONTRIBUTING.md names them.
  const words = ["ci", "--loglevel=error", ...flags];
  const options = { cwd: folder };
  return npm === undefined ? spawned("npm", words, options) : node([npm, ...words], options);
}

// The tests of ORMs and frameworks import sagabox by its name, as applications do.
async function withStack(action) {
  const code = await installWhenNeeded(stack, "--ignore-scripts");
  if (code !== 0) return code;
  const link = join(stack, "node_modules", "sagabox");
  if (!existsSync(link)) symlinkSync(root, link, "junction");
  return action();
}

// npm keeps a list of what it installed. Comparing contents, not file times, survives copies and checkouts.
function whyInstall(folder) {
  const modules = relative(root, join(folder, "node_modules"));
  const installedFile = join(folder, "node_modules", ".package-lock.json");
  if (!existsSync(installedFile)) return `${modules} is missing`;
  const wanted = JSON.parse(readFileSync(join(folder, "package-lock.json"), "utf8")).packages;
  const installed = JSON.parse(readFileSync(installedFile, "utf8")).packages;
  for (const [path, { version, optional, peer }] of Object.entries(wanted)) {
    if (path === "" || optional === true || peer === true) continue;
    if (installed[path]?.version !== version) return `${path} is not at version ${version}`;
  }
  return undefined;
}

function tool(path, args, options) {
  return node([join(root, "node_modules", path), ...args], options);
}

function node(args, options) {
  return spawned(process.execPath, args, options);
}

function spawned(command, args, { env = {}, say, cwd = root } = {}) {
  return new Promise((resolve) => {
    const stdio = say === undefined ? "inherit" : ["ignore", "pipe", "pipe"];
    const child = spawn(command, args, { cwd, stdio, env: { ...process.env, ...env } });
    child.stdout?.setEncoding("utf8").on("data", say);
    child.stderr?.setEncoding("utf8").on("data", say);
    // The child decides how to end, and we report how it did. A terminal interrupts it as well as us, but a process that
    // signals this process alone means the child; the demo knows to take two at once for one.
    const interrupt = () => (task === "start" ? child.kill("SIGINT") : undefined);
    const forward = () => child.kill("SIGTERM");
    process.on("SIGINT", interrupt).on("SIGTERM", forward);
    const done = (code) => {
      process.off("SIGINT", interrupt).off("SIGTERM", forward);
      resolve(code);
    };
    child.on("error", (error) => {
      console.error(`${command} could not be started: ${error.message}`);
      done(1);
    });
    // With its output in our hands it has ended when we have read all of it.
    child.on(say === undefined ? "exit" : "close", (code) => done(code ?? 1));
  });
}
