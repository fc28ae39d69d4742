import { createRequire } from "node:module";
import { SagaboxError } from "../../errors/index.ts";

const OLDEST = [8, 21] as const;

/** Clients of older versions cannot tell whether they are inside a transaction. */
export function isPgTooOld(client: object): boolean {
  return !("getTransactionStatus" in client);
}

/** Without that word a message could be written outside the transaction it belongs to, and nobody would notice. */
export function pgTooOld(installed: string | undefined = installedPg()): SagaboxError {
  const [major = 0, minor = 0] = (installed ?? "").split(".").map(Number);
  // A newer one beside it is another copy than the one that this client came from.
  const isIt = installed !== undefined && (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1]));
  const found = isIt ? `; pg ${installed} is installed` : "";
  return new SagaboxError(
    "STORAGE_CLIENT_TOO_OLD",
    `This client cannot tell whether it is inside a transaction; those of pg can since ${OLDEST.join(".")}${found}. ` +
      `Install pg ${OLDEST.join(".")} or newer (\`npm install pg@${OLDEST[0]}\`), and only one copy of it (\`npm ls pg\`).`,
  );
}

function installedPg(): string | undefined {
  try {
    const { version } = createRequire(import.meta.url)("pg/package.json") as { readonly version?: unknown };
    return typeof version === "string" ? version : undefined;
  } catch {
    return undefined;
  }
}
