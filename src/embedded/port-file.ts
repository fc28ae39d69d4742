import { readFile, writeFile } from "node:fs/promises";
import { findFreePort, isPortFree } from "./free-port.ts";

// Beside the data rather than in it, like the password: the data may belong to another account.
const portPath = (dataDir: string): string => `${dataDir}.port`;

/** The port of the last start on this data if nobody has taken it since, so that an address once given stays good. */
export async function findPort(dataDir: string): Promise<number> {
  const last = Number(await readFile(portPath(dataDir), "utf8").catch(() => ""));
  const isPort = Number.isInteger(last) && last > 0 && last <= 65_535;
  return isPort && (await isPortFree(last)) ? last : findFreePort();
}

/** For the next start. A server that runs is not given up because this cannot be written down. */
export async function storePort(dataDir: string, port: number): Promise<void> {
  await writeFile(portPath(dataDir), `${port}\n`).catch(() => undefined);
}
