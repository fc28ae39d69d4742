// Compiles sources and benchmarks the way the package is built and runs the result with plain Node: a loader that
// translates while it runs would be charged to the product.
import { spawn, spawnSync } from "node:child_process";
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { suites } from "./suites.ts";
import { parseArguments, USAGE } from "./harness/arguments.ts";

const BROKERS = "test/support/brokers";

const argv = process.argv.slice(2);
if (parseArguments(argv, Object.keys(suites)) === undefined) {
  console.error(USAGE);
  process.exit(2);
}

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const built = join(root, "node_modules/.cache/sagabox-bench", String(process.pid));
const compiler = join(root, "node_modules/typescript/bin/tsc");
const options = ["-p", join(root, "benchmarks/tsconfig.json"), "--outDir", built];
const { status, stdout } = spawnSync(process.execPath, [compiler, ...options], { encoding: "utf8" });
if (status !== 0) console.error(stdout);
const program = join(built, "benchmarks/run.js");
if (!existsSync(program)) process.exit(2);
writeFileSync(join(built, "package.json"), JSON.stringify(ownPackage()));
// What the servers of the tests need beside their code.
cpSync(join(root, BROKERS), join(built, BROKERS), {
  recursive: true,
  filter: (path) => !path.endsWith(".ts"),
});

const child = spawn(process.execPath, [program, ...argv], {
  cwd: root,
  stdio: ["inherit", "inherit", "inherit", "ipc"],
});
// Ctrl-C reaches the child as well; it stops its server, then we tidy up.
process.on("SIGINT", () => undefined);
process.on("SIGTERM", () => child.kill("SIGTERM"));
child.on("exit", (code) => {
  rmSync(built, { recursive: true, force: true });
  process.exitCode = code ?? 1;
});

/** The package under its own name, with what was just compiled behind it. */
function ownPackage(): object {
  const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    exports: Record<string, string | { readonly "sagabox:source": string }>;
  };
  const compiled = Object.entries(exports).flatMap(([name, target]) =>
    typeof target === "string" ? [] : [[name, target["sagabox:source"].replace(/\.ts$/, ".js")]],
  );
  const own = { name: "sagabox", type: "module", version: "0.0.0-bench" };
  return { ...own, exports: Object.fromEntries(compiled) as object };
}
