/** The slice of the `pg` package that we use; the user's own copy fits it. */
export interface PgResult {
  readonly rows: unknown[];
  readonly rowCount: number | null;
  readonly command: string;
}

export interface PgQuery {
  readonly text: string;
  readonly values?: readonly unknown[];
  readonly name?: string;
}

export interface PgClient {
  query(query: PgQuery | string): Promise<PgResult>;
  getTransactionStatus?(): string | null;
  on(event: "error" | "end", hear: (error?: Error) => void): unknown;
  on(event: "notification", hear: (message: { channel: string; payload?: string }) => void): unknown;
  removeListener(event: "error", hear: (error?: Error) => void): unknown;
  release(destroy?: boolean): void;
  pipeline?: boolean;
}

export interface PgPool {
  connect(): Promise<PgClient>;
  query(query: PgQuery): Promise<PgResult>;
  end(): Promise<void>;
  on(event: "error", hear: (error: Error) => void): unknown;
  readonly totalCount: number;
  readonly options?: { readonly max?: number };
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
