import { accessSync, constants, mkdtempSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const MEMORY = "/dev/shm";
const ENOUGH_BYTES = 8 * 1024 ** 3;

/**
 * A new folder for the data of a server the tests start. In memory where there is plenty: a database is copied there
 * ten times as fast, and a server that is killed leaves the same files behind as on a disk.
 */
export function serverFolder(prefix: string): string {
  return mkdtempSync(join(serverHome(), prefix));
}

/** The folder in which such folders are made. */
export function serverHome(): string {
  return hasMemory() ? MEMORY : tmpdir();
}

function hasMemory(): boolean {
  try {
    accessSync(MEMORY, constants.W_OK);
    const { blocks, bsize } = statfsSync(MEMORY);
    return blocks * bsize > ENOUGH_BYTES;
  } catch {
    return false;
  }
}
