import { createRequire } from "node:module";
import { SagaboxError } from "../../errors/index.ts";

/** The part of a `pg` client that we use. The user's own copy of pg fits it. */
export interface PgResult {
  readonly rows: unknown[];
  readonly rowCount: number | null;
  readonly command: string;
}

export interface PgQuery {
  readonly text: string;
  readonly values?: readonly unknown[] | undefined;
  readonly name?: string | undefined;
}

export type PgCallback = (error: unknown, result?: PgResult) => void;

/** The socket of a client. Other drivers with this interface may have none. */
export interface PgStream {
  /** Collects writes, so that several messages leave as one packet. */
  cork?(): void;
  uncork?(): void;
  destroy?(): void;
  once?(event: "close", listener: () => void): unknown;
  readonly destroyed?: boolean;
  readonly bytesRead?: number;
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
}

export interface PgClient {
  query(query: PgQuery | string, values?: readonly unknown[]): Promise<PgResult>;
  getTransactionStatus(): string | null;
  on(event: "error" | "end", hear: (error?: Error) => void): unknown;
  on(event: "notification", hear: (message: { channel: string; payload?: string }) => void): unknown;
  removeListener(event: "error", hear: (error?: Error) => void): unknown;
  release(destroy?: boolean): void;
  pipeline?: boolean;
  /** False while any statement is in flight on this connection. */
  readonly readyForQuery?: boolean;
  /** A folder for a Unix socket. */
  readonly host?: string;
  readonly port?: number;
  /** With these two the server finds the session in which a statement is to be cancelled. */
  readonly processID?: unknown;
  readonly secretKey?: unknown;
  readonly connection?: { readonly stream?: PgStream };
}

/** A `pg.Pool` of any version. The type is wide because the overloads of pg fit no narrower one. */
export interface PgPool {
  connect: (...args: never[]) => unknown;
  end: (...args: never[]) => unknown;
  readonly totalCount: number;
  readonly options?: { readonly max?: number; readonly connectionTimeoutMillis?: number | undefined };
}

/** The part of a pool that we use. */
export interface UsedPool {
  on(event: "error", hear: (error: Error) => void): unknown;
  on(event: "connect" | "remove", hear: (client: PgClient) => void): unknown;
  connect(): Promise<PgClient>;
  connect(handOver: (error?: Error, client?: PgClient) => void): Promise<PgClient> | undefined;
  end(): Promise<void>;
  readonly totalCount: number;
  readonly idleCount?: number;
  readonly waitingCount?: number;
}

export function isPgPool(value: unknown): value is PgPool {
  return (
    typeof value === "object" &&
    value !== null &&
    "connect" in value &&
    typeof value.connect === "function" &&
    "totalCount" in value
  );
}

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
