import { spawnSync } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { RunOptions } from "../app/index.ts";
import { errorText, SagaboxError } from "../errors/index.ts";
import { loadForCommandLine } from "../options/index.ts";

const CHECK_MS = 5_000;

/** The methods of the application's bus that a worker calls. */
export interface RunnableBus {
  run(options?: RunOptions): Promise<unknown>;
  /** Rejects, or resolves with `{ clean: false }`, if something did not stop in time. */
  stop(): Promise<unknown>;
}

/** Imports the module and returns its bus: the export `default` or `bus`, or what that function returns. Throws APP_MODULE_INVALID. */
export async function loadApp(path: string, folder: string): Promise<RunnableBus> {
  const file = resolve(folder, path);
  if (!existsSync(file) || !statSync(file).isFile()) {
    throw invalid(path, `The file does not exist in ${folder}.`);
  }
  return loadForCommandLine(() => importBus(path, file));
}

/**
 * Loads the application, reads something from its bus without running it, and stops the bus. Meanwhile everything that the
 * application writes to standard output goes to standard error, so that the output is that of the command alone.
 */
export async function inspectApp<T>(path: string, folder: string, read: (bus: object) => T): Promise<T> {
  const { stdout, stderr } = process;
  const write = stdout.write.bind(stdout);
  stdout.write = stderr.write.bind(stderr);
  try {
    const bus = await loadApp(path, folder);
    try {
      return read(bus);
    } finally {
      await bus.stop();
    }
  } finally {
    stdout.write = write;
  }
}

async function importBus(path: string, file: string): Promise<RunnableBus> {
  const exported = await importModule(path, file);
  for (const candidate of [exported["default"], exported["bus"]]) {
    const bus = await toBus(path, candidate);
    if (bus !== undefined) return bus;
  }
  throw invalid(path, "Export the bus as `default` or as `bus`, or a function that returns it.");
}

async function importModule(path: string, file: string): Promise<Record<string, unknown>> {
  try {
    const exported = (await import(pathToFileURL(file).href)) as Record<string, unknown>;
    // Node wraps the exports of a CommonJS module in another `default`.
    const inner = exported["default"];
    return isRecord(inner) && "default" in inner ? { ...exported, ...inner } : exported;
  } catch (error) {
    throw invalid(path, `The import failed: ${importProblem(error, file)}`, error);
  }
}

function importProblem(error: unknown, file: string): string {
  const { code } = error as NodeJS.ErrnoException;
  if (code === "ERR_UNKNOWN_FILE_EXTENSION") {
    return 'this version of Node cannot load TypeScript. Build the app first, or set NODE_OPTIONS="--import tsx".';
  }
  const location =
    error instanceof SyntaxError ? (findLocation(error.stack) ?? findLocationByCheck(file)) : undefined;
  return location === undefined ? errorText(error) : `${errorText(error)} at ${location}`;
}

/** Extracts `file:line`, which Node prints above most syntax errors. */
function findLocation(text = ""): string | undefined {
  const [, file = "", line] = /^(\S.*?):(\d+)\n/.exec(text) ?? [];
  if (line === undefined) return undefined;
  return `${file.startsWith("file:") ? fileURLToPath(file) : file}:${line}`;
}

// For an imported module the error has no location, but `node --check` prints one.
function findLocationByCheck(file: string): string | undefined {
  const options = { encoding: "utf8", timeout: CHECK_MS, windowsHide: true } as const;
  return findLocation(spawnSync(process.execPath, ["--check", file], options).stderr);
}

async function toBus(path: string, candidate: unknown): Promise<RunnableBus | undefined> {
  if (isBus(candidate)) return candidate;
  if (typeof candidate !== "function") return undefined;
  let bus: unknown;
  try {
    bus = await (candidate as () => unknown)();
  } catch (error) {
    throw invalid(path, `Its exported function threw: ${errorText(error)}`, error);
  }
  if (isBus(bus)) return bus;
  throw invalid(path, "Its exported function must return a bus: an object with run() and stop().");
}

function isBus(value: unknown): value is RunnableBus {
  return isRecord(value) && typeof value["run"] === "function" && typeof value["stop"] === "function";
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

function invalid(path: string, problem: string, cause?: unknown): SagaboxError {
  const options = cause === undefined ? {} : { cause };
  return new SagaboxError(
    "APP_MODULE_INVALID",
    `"${path}" cannot be used as the application. ${problem}`,
    options,
  );
}
