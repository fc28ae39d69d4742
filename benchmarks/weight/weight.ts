import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { compare } from "../harness/compare.ts";
import { size, type Bench } from "../harness/bench.ts";
import { result, type Result } from "../harness/result.ts";
import { computeRatio, median, summary } from "../harness/statistics.ts";

const run = promisify(execFile);

/** The last major version of pg-boss that runs on Node 20. It is no dependency of ours. */
const PG_BOSS = "pg-boss@11.1.2";
const MAX_MODULES = 420;

/** A folder from which `name` can be imported. */
interface Importable {
  readonly name: string;
  readonly folder: string;
}

interface ImportReport {
  readonly ms: number;
  /** Modules of the package itself, without its dependencies and without those of Node. */
  readonly modules: number;
}

/** What `import "sagabox"` costs a service when it starts: modules, and time against importing pg-boss. */
export async function weight(bench: Bench): Promise<Result[]> {
  // The compiled package: benchmarks/main.ts writes its package.json two folders above this file.
  const sagabox = { name: "sagabox", folder: dirname(dirname(import.meta.dirname)) };
  const installed = await installPgBoss(bench);
  const starts = size(bench, 5, 2);
  const samples = await compare(bench, "weight, ms", {
    sagabox: () => bestImportMs(sagabox, starts),
    "pg-boss": () =>
      installed === undefined ? Promise.resolve(Number.NaN) : bestImportMs(installed, starts),
  });
  const { modules } = await importOnce(sagabox);
  const detail = { modules, "import ms": median(samples.sagabox) };
  const results = [result("weight.modules", summary([modules / MAX_MODULES]), detail)];
  if (installed === undefined) return results;
  const theirs = { "pg-boss ms": median(samples["pg-boss"]), "pg-boss": PG_BOSS };
  results.push(result("weight.import", computeRatio(samples.sagabox, samples["pg-boss"]), theirs));
  await rm(installed.folder, { recursive: true, force: true });
  return results;
}

async function installPgBoss(bench: Bench): Promise<Importable | undefined> {
  const folder = await mkdtemp(join(tmpdir(), "sagabox-weight-"));
  await writeFile(join(folder, "package.json"), '{ "private": true }');
  const quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
  try {
    await run("npm", ["install", ...quiet, PG_BOSS], { cwd: folder, timeout: 120_000 });
    return { name: "pg-boss", folder };
  } catch (error) {
    bench.leaveOut("weight.import", `${PG_BOSS} cannot be installed: ${String(error).split("\n")[0]}`);
    await rm(folder, { recursive: true, force: true });
    return undefined;
  }
}

/** The shortest of some imports, each in a new process. */
async function bestImportMs(importable: Importable, starts: number): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  for (let n = 0; n < starts; n++) best = Math.min(best, (await importOnce(importable, false)).ms);
  return best;
}

/** Counting modules makes the import slower, so it is left out where the time matters. */
async function importOnce({ name, folder }: Importable, isCounting = true): Promise<ImportReport> {
  const program = `${isCounting ? COUNTER : "const loaded = [0];"}
    const beganMs = performance.now();
    await import(${JSON.stringify(name)});
    console.log(JSON.stringify({ ms: performance.now() - beganMs, modules: loaded[0] }));`;
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", program], { cwd: folder });
  return JSON.parse(stdout) as ImportReport;
}

const HOOKS = `let loaded, own;
  export function initialize(given) { ({ loaded, own } = given); }
  export function load(url, context, next) {
    if (url.startsWith(own)) Atomics.add(loaded, 0, 1);
    return next(url, context);
  }`;

const COUNTER = `import { register } from "node:module";
  import { pathToFileURL } from "node:url";
  const loaded = new Int32Array(new SharedArrayBuffer(4));
  const own = pathToFileURL(process.cwd() + "/").href;
  register(${JSON.stringify(`data:text/javascript,${encodeURIComponent(HOOKS)}`)}, { data: { loaded, own } });`;
