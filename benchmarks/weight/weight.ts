import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { promisify } from "node:util";
import { pack } from "../../test/ops/support/packed-app.ts";
import { size, type Bench } from "../harness/bench.ts";
import { compare } from "../harness/compare.ts";
import { result, type Detail, type Result } from "../harness/result.ts";
import { computeRatio, median, summary } from "../harness/statistics.ts";

const run = promisify(execFile);

/** The newest versions whose dependencies all install. They are no dependencies of ours. */
const PEERS = { "pg-boss": "pg-boss@12.35.0", "graphile-worker": "graphile-worker@0.18.0" };
/** The peers need a newer Node than sagabox does, so all contenders run on this one. */
const NODE = "node@24.21.0";
const WALL_MS = "performance.now()";
const PROCESSOR_MS = "((used) => (used.user + used.system) / 1000)(process.cpuUsage())";
const MAX_JAVASCRIPT_BYTES = 2_000_000;

type Name = "sagabox" | keyof typeof PEERS;

/** A folder with one package installed, as an application would. */
interface Installed<N extends Name = Name> {
  readonly name: N;
  readonly folder: string;
}

/** The packages to compare with, and the Node executable that imports all of them. */
interface Peers {
  readonly node: string;
  readonly pgBoss: Installed<"pg-boss">;
  readonly graphile: Installed<"graphile-worker">;
}

interface PackageSize {
  readonly javascriptBytes: number;
  readonly bytes: number;
  /** Bytes of the package with its dependencies. */
  readonly installedBytes: number;
}

/** What a service pays for `import "sagabox"`: time, modules and bytes, beside pg-boss and graphile-worker. */
export async function weight(bench: Bench): Promise<Result[]> {
  const folder = await mkdtemp(join(tmpdir(), "sagabox-weight-"));
  try {
    // process.cwd() is the checkout, see benchmarks/main.ts.
    const sagabox = await install(folder, "sagabox", pack(folder, process.cwd()));
    const results = [judgeSize(await measureSize(sagabox))];
    const peers = await installPeers(bench, folder);
    return peers === undefined ? results : [...results, ...(await judgeImports(bench, sagabox, peers))];
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function judgeSize({ javascriptBytes, bytes, installedBytes }: PackageSize): Result {
  return result("weight.size", summary([javascriptBytes / MAX_JAVASCRIPT_BYTES]), {
    "JavaScript, kB": javascriptBytes / 1_000,
    "with declarations, sources, maps and docs, kB": bytes / 1_000,
    "with pg, kB": installedBytes / 1_000,
  });
}

async function judgeImports(
  bench: Bench,
  sagabox: Installed,
  { node, pgBoss, graphile }: Peers,
): Promise<Result[]> {
  const starts = size(bench, 5, 2);
  const samples = await compare(bench, "weight, ms", {
    sagabox: () => bestImportMs(node, sagabox, starts),
    "sagabox and pg": () => bestImportMs(node, sagabox, starts, ["sagabox", "pg"]),
    "pg-boss": () => bestImportMs(node, pgBoss, starts),
    "graphile-worker": () => bestImportMs(node, graphile, starts),
    "sagabox, processor": () => bestImportMs(node, sagabox, starts, ["sagabox"], PROCESSOR_MS),
    "pg-boss, processor": () => bestImportMs(node, pgBoss, starts, ["pg-boss"], PROCESSOR_MS),
  });
  const [ours, theirs] = [await countModules(node, sagabox), await countModules(node, pgBoss)];
  return [
    result("weight.import", computeRatio(samples.sagabox, samples["pg-boss"]), {
      "sagabox ms": median(samples.sagabox),
      "pg-boss ms": median(samples["pg-boss"]),
      ...(await describeSize(pgBoss)),
      node: NODE,
    }),
    result("weight.import.cpu", computeRatio(samples["sagabox, processor"], samples["pg-boss, processor"]), {
      "sagabox ms": median(samples["sagabox, processor"]),
      "pg-boss ms": median(samples["pg-boss, processor"]),
    }),
    result("weight.import.pg", computeRatio(samples["sagabox and pg"], samples["pg-boss"]), {
      "sagabox and pg ms": median(samples["sagabox and pg"]),
    }),
    result("weight.import.graphile", computeRatio(samples.sagabox, samples["graphile-worker"]), {
      "graphile-worker ms": median(samples["graphile-worker"]),
      ...(await describeSize(graphile)),
    }),
    result("weight.modules", summary([ours / theirs]), {
      sagabox: ours,
      "pg-boss": theirs,
      "graphile-worker": await countModules(node, graphile),
    }),
  ];
}

async function describeSize(peer: Installed<keyof typeof PEERS>): Promise<Detail> {
  const { bytes, javascriptBytes, installedBytes } = await measureSize(peer);
  return {
    [`${PEERS[peer.name]} JavaScript, kB`]: javascriptBytes / 1_000,
    "package, kB": bytes / 1_000,
    "with dependencies, kB": installedBytes / 1_000,
  };
}

async function installPeers(bench: Bench, folder: string): Promise<Peers | undefined> {
  try {
    const command = ["exec", "--yes", `--package=${NODE}`, "--", "node", "-p", "process.execPath"];
    const { stdout } = await run("npm", command, { cwd: folder, timeout: 120_000 });
    return {
      node: stdout.trim(),
      pgBoss: await install(folder, "pg-boss", PEERS["pg-boss"]),
      graphile: await install(folder, "graphile-worker", PEERS["graphile-worker"]),
    };
  } catch (error) {
    bench.leaveOut("weight.import", `the peers cannot be installed: ${String(error).split("\n")[0]}`);
    return undefined;
  }
}

async function install<N extends Name>(parent: string, name: N, what: string): Promise<Installed<N>> {
  const folder = join(parent, name);
  await mkdir(folder);
  await writeFile(join(folder, "package.json"), '{ "private": true }');
  const quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
  await run("npm", ["install", ...quiet, what], { cwd: folder, timeout: 120_000 });
  return { name, folder };
}

async function measureSize({ name, folder }: Installed): Promise<PackageSize> {
  const home = join(folder, "node_modules");
  const own = await fileSizes(join(home, name));
  const javascript = own.filter(({ path }) => [".js", ".mjs", ".cjs"].includes(extname(path)));
  return {
    javascriptBytes: sumBytes(javascript),
    bytes: sumBytes(own),
    installedBytes: sumBytes(await fileSizes(home)),
  };
}

async function fileSizes(folder: string): Promise<{ readonly path: string; readonly bytes: number }[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return Promise.all(paths.map(async (path) => ({ path, bytes: (await stat(path)).size })));
}

function sumBytes(files: readonly { readonly bytes: number }[]): number {
  return files.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** The shortest of some imports, each in a new process. */
async function bestImportMs(
  node: string,
  { name, folder }: Installed,
  starts: number,
  modules: readonly string[] = [name],
  clock = WALL_MS,
): Promise<number> {
  const imports = modules.map((module) => `await import(${JSON.stringify(module)});`).join(" ");
  const program = `const beganMs = ${clock}; ${imports} console.log(${clock} - beganMs);`;
  let best = Number.POSITIVE_INFINITY;
  for (let n = 0; n < starts; n++) best = Math.min(best, await evaluate(node, folder, program));
  return best;
}

/** Counts the files that one import loads, with those of dependencies and without those of Node. */
function countModules(node: string, { name, folder }: Installed): Promise<number> {
  const program = `import { registerHooks } from "node:module";
    let count = 0;
    registerHooks({ load(url, context, next) { if (url.startsWith("file:")) count++; return next(url, context); } });
    await import(${JSON.stringify(name)});
    console.log(count);`;
  return evaluate(node, folder, program);
}

async function evaluate(node: string, cwd: string, program: string): Promise<number> {
  const { stdout } = await run(node, ["--input-type=module", "-e", program], { cwd });
  return Number(stdout);
}
