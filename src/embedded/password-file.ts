import { readFile, writeFile } from "node:fs/promises";
import { systemErrorCode } from "./failure.ts";

/** Kept beside the data rather than in it: it belongs to the person, the data may belong to another account. */
export function passwordPath(dataDir: string): string {
  return `${dataDir}.password`;
}

export async function readPassword(dataDir: string): Promise<string | undefined> {
  const content = await readFile(passwordPath(dataDir), "utf8").catch(() => undefined);
  return content?.trim();
}

/** Keeps the password, unless another start was first: then that one counts and is returned. */
export async function storePassword(dataDir: string, password: string): Promise<string> {
  try {
    await writeFile(passwordPath(dataDir), `${password}\n`, { mode: 0o600, flag: "wx" });
    return password;
  } catch (error) {
    const first = systemErrorCode(error) === "EEXIST" ? await readPassword(dataDir) : undefined;
    if (first === undefined) throw error;
    return first;
  }
}
