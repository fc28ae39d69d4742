import { spawnSync } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { RunOptions } from "../app/index.ts";
import { errorText, SagaboxError } from "../errors/index.ts";

const CHECK_MS = 5_000;

/** What a worker needs of the application's bus. */
export interface RunnableBus {
  run(options?: RunOptions): Promise<unknown>;
  /** Rejects, or resolves with `{ clean: false }`, when not everything ended in time. */
  stop(): Promise<unknown>;
}

/** Imports the module and finds the bus in it: its default export or `bus`, as it is or made by a function. */
export async function loadApp(path: string, folder: string): Promise<RunnableBus> {
  const file = resolve(folder, path);
  if (!existsSync(file) || !statSync(file).isFile()) {
    throw invalid(path, `There is no such file; it was looked for in ${folder}.`);
  }
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
    // A CommonJS module arrives with its exports wrapped once more.
    const inner = exported["default"];
    return isRecord(inner) && "default" in inner ? { ...exported, ...inner } : exported;
  } catch (error) {
    throw invalid(path, `It cannot be imported: ${importProblem(error, file)}`, error);
  }
}

function importProblem(error: unknown, file: string): string {
  const { code } = error as NodeJS.ErrnoException;
  if (code === "ERR_UNKNOWN_FILE_EXTENSION") {
    return 'this Node does not read TypeScript. Build it first, or set NODE_OPTIONS="--import tsx".';
  }
  const place =
    error instanceof SyntaxError ? (findLocation(error.stack) ?? findLocationByCheck(file)) : undefined;
  return place === undefined ? errorText(error) : `${errorText(error)} at ${place}`;
}

/** Node puts file and line before an error of the syntax, where it tells them. */
function findLocation(text = ""): string | undefined {
  const [, file = "", line] = /^(\S.*?):(\d+)\n/.exec(text) ?? [];
  if (line === undefined) return undefined;
  return `${file.startsWith("file:") ? fileURLToPath(file) : file}:${line}`;
}

// Of a module that it imports itself, Node keeps the place to itself; asked to check the file, it tells.
function findLocationByCheck(file: string): string | undefined {
  const options = { encoding: "utf8", timeout: CHECK_MS, windowsHide: true } as const;
  return findLocation(spawnSync(process.execPath, ["--check", file], options).stderr);
}

async function toBus(path: string, candidate: unknown): Promise<RunnableBus | undefined> {
  if (isBus(candidate)) return candidate;
  if (typeof candidate !== "function") return undefined;
  let made: unknown;
  try {
    made = await (candidate as () => unknown)();
  } catch (error) {
    throw invalid(path, `Its function failed: ${errorText(error)}`, error);
  }
  if (isBus(made)) return made;
  throw invalid(path, "Its function returned no bus: an object with run() and stop() is needed.");
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
