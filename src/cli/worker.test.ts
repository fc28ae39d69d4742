import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { runCli, startCli } from "../../test/support/run-cli.ts";

vi.setConfig({ testTimeout: 60_000 });

function folder(files: Readonly<Record<string, string>>): string {
  const path = mkdtempSync(join(tmpdir(), "sagabox-cli-"));
  onTestFinished(() => rmSync(path, { recursive: true }));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(path, name), text);
  return path;
}

const bus = (stop: string) => `
  const bus = {
    async run(options) { console.log("running " + JSON.stringify(options)); setInterval(() => {}, 1000); },
    async stop() { console.log("stopping"); ${stop} },
  };
`;

test.each(["SIGTERM", "SIGINT"] as const)(
  "G1: %s stops the bus and exits with 0, whatever the app left open",
  async (signal) => {
    const cwd = folder({ "app.mjs": `${bus("console.log('drained');")} export default bus;` });
    const cli = startCli(["worker", "--app", "app.mjs"], { cwd });
    await cli.waitForOutput("running");
    cli.child.kill(signal);
    expect(await cli.ended).toMatchObject({ code: 0, stdout: 'running {"port":8000}\nstopping\ndrained\n' });
  },
);

test("G11: the port comes from the option, then from SAGABOX_PORT", async () => {
  const cwd = folder({ "app.mjs": `${bus("")} export { bus };` });
  for (const [args, expected] of [
    [[], '{"port":9100,"host":"0.0.0.0"}'],
    [["--port", "0", "--host", "::1"], '{"port":0,"host":"::1"}'],
  ] as const) {
    const env = { SAGABOX_PORT: "9100", SAGABOX_HOST: "0.0.0.0" };
    const cli = startCli(["worker", "--app", "./app.mjs", ...args], { cwd, env });
    await cli.waitForOutput(`running ${expected}`);
    cli.child.kill("SIGTERM");
    expect((await cli.ended).code).toBe(0);
  }
});

test.each([
  ["SIGTERM", 143],
  ["SIGINT", 130],
] as const)("a second signal, here %s, ends at once with %i", async (second, code) => {
  const cwd = folder({ "app.mjs": `${bus("await new Promise(() => {});")} export default bus;` });
  const cli = startCli(["worker", "--app", "app.mjs"], { cwd });
  await cli.waitForOutput("running");
  cli.child.kill("SIGTERM");
  await cli.waitForOutput("stopping");
  cli.child.kill(second);
  expect((await cli.ended).code).toBe(code);
});

test.each([
  ["hangs", "await new Promise(() => {});", "50ms", "SHUTDOWN_TIMEOUT"],
  ["was cut off by itself", "return { clean: false, timedOut: true };", "50ms", "SHUTDOWN_TIMEOUT"],
  ["says at once that it was not clean", "return { clean: false };", "30s", "SHUTDOWN_INCOMPLETE"],
])("a stop that %s ends with 1 and says why", async (_name, stop, timeout, reason) => {
  const cwd = folder({ "app.mjs": `${bus(stop)} export default bus;` });
  const cli = startCli(["worker", "--app", "app.mjs"], { cwd, env: { SAGABOX_SHUTDOWN_TIMEOUT: timeout } });
  await cli.waitForOutput("running");
  cli.child.kill("SIGTERM");
  const { code, stderr } = await cli.ended;
  expect(code).toBe(1);
  expect(stderr).toContain(reason);
});

test("G11: a shutdown timeout in code goes before the one of the environment", async () => {
  const app = `import { createBus } from ${JSON.stringify(new URL("../app/index.ts", import.meta.url).href)};
    const bus = createBus({ service: "shop", database: "postgres://127.0.0.1:1/none", log: false, shutdownTimeout: 50 });
    bus.run = async () => { console.log("running"); };
    bus.stop = () => new Promise(() => {});
    export default bus;`;
  const env = { SAGABOX_SHUTDOWN_TIMEOUT: "10m" };
  const cli = startCli(["worker", "--app", "app.mjs"], { cwd: folder({ "app.mjs": app }), env });
  await cli.waitForOutput("running");
  cli.child.kill("SIGTERM");
  const { code, stderr } = await cli.ended;
  expect(code).toBe(1);
  expect(stderr).toContain("SHUTDOWN_TIMEOUT");
});

test("a bus that cannot start is stopped, its error shown, and the exit code is 1", async () => {
  const app = `export default {
    async run() { throw new Error("no database at postgres://app:canary-77@db"); },
    async stop() { console.log("stopped") },
  };`;
  const { code, stdout, stderr } = await runCli(["worker", "--app", "app.mjs"], {
    cwd: folder({ "app.mjs": app }),
  });
  expect([code, stdout]).toEqual([1, "stopped\n"]);
  expect(stderr).toContain("no database at");
  expect(stderr).not.toContain("canary-77");
});

test("a bus may also be made by a function, in TypeScript, and be running only until it is stopped", async () => {
  const app = `let end: () => void = () => {};
    export default async function make(): Promise<object> {
      return { run: () => new Promise<void>((r) => { end = r; console.log("running"); }), stop: async () => end() };
    }`;
  const cli = startCli(["worker", "--app", "app.ts"], { cwd: folder({ "app.ts": app }) });
  await cli.waitForOutput("running");
  cli.child.kill("SIGTERM");
  expect((await cli.ended).code).toBe(0);
});

test("a CommonJS module is found as well", async () => {
  const cwd = folder({ "app.cjs": `${bus("")} module.exports = { bus };` });
  const cli = startCli(["worker", "--app", "app.cjs"], { cwd });
  await cli.waitForOutput("running");
  cli.child.kill("SIGTERM");
  expect((await cli.ended).code).toBe(0);
});

test.each([
  ["nothing.mjs", undefined, "The file does not exist"],
  ["folder", undefined, "The file does not exist"],
  ["empty.mjs", "export const x = 1;", "Export the bus as `default` or as `bus`"],
  ["half.mjs", "export default { run() {} };", "Export the bus"],
  ["broken.mjs", "throw new Error('boom at load');", "import failed: boom at load"],
  ["syntax.mjs", "export default {", "import failed"],
  ["missing.mjs", "import 'not-installed-anywhere';", "not-installed-anywhere"],
  ["throws.mjs", "export default () => { throw new Error('boom in function'); };", "boom in function"],
  ["wrong.mjs", "export default () => 7;", "must return a bus"],
])("%s is refused as an application", async (name, text, problem) => {
  const cwd = folder(text === undefined ? {} : { [name]: text });
  const { code, stderr } = await runCli(["worker", "--app", name], { cwd });
  expect(code).toBe(1);
  expect(stderr).toContain(problem);
  expect(stderr).toContain("[APP_MODULE_INVALID]");
});

test.each([
  [["worker"], "needs --app"],
  [["worker", "--app", "x", "--port", "http"], "--port must be a whole number"],
  [["worker", "--app", "x", "--port", "70000"], "--port must be a whole number"],
  [["worker", "--app", "x", "--parts", "relay,consumer"], 'Did you mean "consumers"?'],
  [["worker", "app.mjs"], "needs --app"],
  [["worker", "--app", "x", "extra"], "takes no argument"],
  [["worker", "--ap", "x"], "Did you mean --app?"],
  [["wroker"], "Did you mean worker?"],
  [["frobnicate"], "Known: dev, worker, migrate"],
  [["migrate"], "needs one of up, status, sql"],
  [["migrate", "stats"], "Did you mean status?"],
  [["migrate", "up", "now"], "takes no further argument"],
  [["migrate", "up", "--schema"], "needs a value for --schema"],
  [["help", "migrat"], "Did you mean migrate?"],
])("%j makes no sense: exit code 2 and a hint", async (args, hint) => {
  const { code, stdout, stderr } = await runCli(args);
  expect([code, stdout]).toEqual([2, ""]);
  expect(stderr).toContain(hint);
});

test("G11: a bad environment is reported as a whole, with exit code 2 and without its values", async () => {
  const env = { SAGABOX_PORT: "canary-1", SAGABOX_LEASE: "canary-2", SAGABOX_PROT: "1" };
  const { code, stderr } = await runCli(["worker", "--app", "x"], { env });
  expect(code).toBe(2);
  expect(stderr).toMatch(/SAGABOX_PROT is set, but sagabox does not read it. Did you mean SAGABOX_PORT\?/);
  expect(stderr).toMatch(/SAGABOX_LEASE.*SAGABOX_PORT/s);
  expect(stderr).not.toContain("canary");
});

test.each([[["--help"]], [["help"]], [[]], [["migrate", "--help"]], [["worker", "-h"]], [["help", "dev"]]])(
  "%j shows help on standard output",
  async (args) => {
    const { code, stdout, stderr } = await runCli(args);
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(/^.+\n\nUsage: sagabox /);
  },
);

test("a reader that leaves early is no failure", async () => {
  const cli = startCli(["migrate", "sql"]);
  cli.child.stdout?.destroy();
  expect((await cli.ended).code).toBe(0);
});

test("a port that is taken is told with the variable that changes it", async () => {
  const other = createServer();
  onTestFinished(() => void other.close());
  other.listen(0, "127.0.0.1");
  await once(other, "listening");
  const { port } = other.address() as AddressInfo;
  const server = new URL("../app/health-server.ts", import.meta.url).href;
  const app = `import { HealthServer } from ${JSON.stringify(server)};
    export default { run: ({ port }) => new HealthServer({ port, ready: async () => ({}) }).start(), async stop() {} };`;
  const cwd = folder({ "app.mjs": app });
  const { code, stderr } = await runCli(["worker", "--app", "app.mjs", "--port", String(port)], { cwd });
  expect(code).toBe(1);
  expect(stderr).toMatch(new RegExp(`Port ${port}.*in use.*SAGABOX_PORT.*LISTEN_FAILED`));
});
