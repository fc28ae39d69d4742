// I8: an application bundled with its own bundler, sagabox and pg included, still publishes and handles messages.
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createDatabase, type TemporaryDatabase } from "../support/database.ts";
import { pack } from "./support/packed-app.ts";

// The bundlers are installed by name into the application, as a user would.
const installed = ["pg@8.23.1", "esbuild@0.28.2", "rollup@4.65.0", "webpack@5", "webpack-cli@6"];
const plugins = ["@rollup/plugin-node-resolve@16", "@rollup/plugin-commonjs@28", "@rollup/plugin-json@6"];

const program = `
import pg from "pg";
import { createBus, event } from "sagabox";
const Placed = event("orders.order.placed", { version: 1, key: (data) => data.id, schema: { "~standard": {
  version: 1, vendor: "none", validate: (value) => ({ value }) } } });
async function main() {
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const bus = createBus({ service: "orders", database: pool });
await bus.migrate();
const handled = new Promise((resolve) => bus.on(Placed, { consumer: "mail" }, (message) => resolve(message.data.id)));
await bus.run();
await bus.transaction((tx) => bus.publish(tx, Placed, { id: "A-1" }));
console.log("handled " + (await handled));
await bus.stop();
await pool.end();
}
main();
`;

const bundlers: Record<string, { files?: Record<string, string>; command: string[]; output: string }> = {
  esbuild: {
    command: [
      "esbuild",
      "app.js",
      "--bundle",
      "--platform=node",
      "--format=cjs",
      "--outfile=esbuild.cjs",
      "--external:pg-native",
    ],
    output: "esbuild.cjs",
  },
  rollup: {
    files: {
      "rollup.config.js": `
import commonjs from "@rollup/plugin-commonjs";
import json from "@rollup/plugin-json";
import resolve from "@rollup/plugin-node-resolve";
export default { input: "app.js", output: { file: "rollup.mjs", inlineDynamicImports: true }, external: ["pg-native"],
  plugins: [resolve({ preferBuiltins: true }), commonjs({ ignoreDynamicRequires: true }), json()] };`,
    },
    command: ["rollup", "-c"],
    output: "rollup.mjs",
  },
  webpack: {
    files: {
      "webpack.config.js": `
export default { entry: "./app.js", target: "node20", mode: "production", optimization: { minimize: false }, externals: ["pg-native"],
  experiments: { outputModule: true }, externalsType: "commonjs",
  output: { filename: "webpack.mjs", path: import.meta.dirname, module: true, chunkFormat: "module" } };`,
    },
    command: ["webpack"],
    output: "webpack.mjs",
  },
};

const compiler = join(import.meta.dirname, "../../node_modules/typescript/bin/tsc");

let folder: string;
let database: TemporaryDatabase;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "sagabox-bundle-"));
  const manifest = { name: "app", version: "1.0.0", type: "module" };
  writeFileSync(join(folder, "package.json"), JSON.stringify(manifest));
  writeFileSync(join(folder, "app.js"), program);
  const quiet = ["--no-audit", "--no-fund", "--loglevel=error"];
  execFileSync("npm", ["install", pack(folder), ...installed, ...plugins, ...quiet], { cwd: folder });
  database = await createDatabase();
}, 300_000);

afterAll(async () => {
  await database.drop();
  rmSync(folder, { recursive: true, force: true });
});

test.each(Object.entries(bundlers))("%s", { timeout: 120_000 }, (_, { files = {}, command, output }) => {
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  const [tool = "", ...words] = command;
  const bundled = spawnSync(join(folder, "node_modules/.bin", tool), words, {
    cwd: folder,
    encoding: "utf8",
  });
  expect(bundled.status, bundled.stderr + bundled.stdout).toBe(0);
  // webpack warns about an import of a computed path, which only the command line contains.
  expect(bundled.stdout).not.toContain("Critical dependency");
  const env = { ...process.env, DATABASE_URL: database.url };
  const run = spawnSync(process.execPath, [output], { cwd: folder, encoding: "utf8", env });
  expect(run.stdout, run.stderr).toContain("handled A-1");
});

test("require() of the package works in a CommonJS program", () => {
  writeFileSync(join(folder, "program.cjs"), 'console.log(typeof require("sagabox").createBus);');
  const run = spawnSync(process.execPath, ["program.cjs"], { cwd: folder, encoding: "utf8" });
  expect(run.stdout.trim(), run.stderr).toBe("function");
});

test.each(["nodenext", "node20"])("a CommonJS program compiles with module: %s", (module) => {
  writeFileSync(
    join(folder, "typed.cts"),
    'import { createBus } from "sagabox";\ncreateBus({ service: 1 });\n',
  );
  const words = ["--module", module, "--noEmit", "--strict", "--skipLibCheck", "--types", "", "typed.cts"];
  const { stdout } = spawnSync(process.execPath, [compiler, ...words], { cwd: folder, encoding: "utf8" });
  const errors = stdout
    .trim()
    .split("\n")
    .filter((line) => line.includes("error TS"));
  // The one error shows that the types were found and that they check.
  expect(errors, stdout).toHaveLength(1);
  expect(stdout).toMatch(/Type 'number' is not assignable to type 'string'/);
});

test("importing the package loads neither an HTTP server nor pg", () => {
  const program = `import "sagabox";
    const isLoaded = (name) => process.moduleLoadList.includes("NativeModule " + name);
    console.log(JSON.stringify({ crypto: isLoaded("crypto"), http: isLoaded("http"), dns: isLoaded("dns") }));`;
  const run = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
    cwd: folder,
    encoding: "utf8",
  });
  // pg imports node:dns, and sagabox node:crypto.
  expect(JSON.parse(run.stdout), run.stderr).toEqual({ crypto: true, http: false, dns: false });
});

test("the package holds at most 2 MB of JavaScript: one file for each entry, chunks and pages", () => {
  const home = join(folder, "node_modules/sagabox/dist");
  const files = readdirSync(home, { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".js"),
  );
  const bytes = files.reduce((sum, name) => sum + statSync(join(home, name)).size, 0);
  expect(bytes).toBeLessThan(2_000_000);
  const { exports } = JSON.parse(readFileSync(join(home, "../package.json"), "utf8")) as {
    exports: Record<string, string | { default: string }>;
  };
  const entries = Object.values(exports).flatMap((entry) =>
    typeof entry === "object" ? [entry.default.slice("./dist/".length)] : [],
  );
  const isShared = (name: string): boolean => name.startsWith("chunks/") || name.startsWith("dashboard/ui/");
  expect(files.filter((name) => !isShared(name)).toSorted()).toEqual([...entries, "cli/main.js"].toSorted());
});
