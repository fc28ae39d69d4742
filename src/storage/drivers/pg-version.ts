import { createRequire } from "node:module";
import { SagaboxError } from "../../errors/index.ts";

const MIN_VERSION = [8, 21] as const;

/** Clients of older versions cannot tell whether they are inside a transaction. */
export function isPgTooOld(client: object): boolean {
  return !("getTransactionStatus" in client);
}

/**
 * The error for clients that hide their transaction status: a message could be written outside its transaction, unnoticed.
 */
export function pgTooOldError(installed: string | undefined = readInstalledVersion()): SagaboxError {
  const [major = 0, minor = 0] = (installed ?? "").split(".").map(Number);
  // If the installed version is new enough, the client came from another copy.
  const isIt =
    installed !== undefined &&
    (major < MIN_VERSION[0] || (major === MIN_VERSION[0] && minor < MIN_VERSION[1]));
  const found = isIt ? `; pg ${installed} is installed` : "";
  return new SagaboxError(
    "STORAGE_CLIENT_TOO_OLD",
    `This client does not report whether it is inside a transaction. Clients of pg do since ${MIN_VERSION.join(".")}${found}. ` +
      `Install pg ${MIN_VERSION.join(".")} or newer (\`npm install pg@${MIN_VERSION[0]}\`), and only one copy of it (\`npm ls pg\`).`,
  );
}

function readInstalledVersion(): string | undefined {
  try {
    const { version } = createRequire(import.meta.url)("pg/package.json") as { readonly version?: unknown };
    return typeof version === "string" ? version : undefined;
  } catch {
    return undefined;
  }
}
