import { realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { secretFiles, type Environment } from "../../options/index.ts";

export interface SecretFiles {
  /** How many files with secrets the environment names. */
  readonly files: number;
  /** The variables among those whose file every user of the machine can read or change. */
  readonly open: readonly string[];
}

const OTHERS_EXECUTE = 0o001;
const OTHERS_READ_OR_WRITE = 0o006;

/** Windows keeps its rights elsewhere: there every file passes. */
export function findOpenSecrets(env: Environment, platform: NodeJS.Platform = process.platform): SecretFiles {
  const named = secretFiles(env);
  const open = platform === "win32" ? [] : named.filter(({ path }) => isOpen(path));
  return { files: named.length, open: open.map(({ name }) => name) };
}

// What is not there, or where we may not look, is closed; whoever needs it complains of it by itself.
function isOpen(path: string): boolean {
  try {
    const file = realpathSync(path);
    return (statSync(file).mode & OTHERS_READ_OR_WRITE) !== 0 && isReachableByOthers(dirname(file));
  } catch {
    return false;
  }
}

/** A file in a folder that others cannot enter is theirs as little as the folder. */
function isReachableByOthers(folder: string): boolean {
  if ((statSync(folder).mode & OTHERS_EXECUTE) === 0) return false;
  const above = dirname(folder);
  return above === folder || isReachableByOthers(above);
}
