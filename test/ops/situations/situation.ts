/** Something that goes wrong in an installation of its own, and how it is repaired. */
export interface Situation {
  /** What must fire while it lasts and resolve once it is repaired. */
  readonly alerts: readonly string[];
  /** What Prometheus scrapes, by the name of the job. */
  readonly targets: Readonly<Record<string, string>>;
  cause(): Promise<void>;
  repair(): Promise<void>;
  end(): Promise<void>;
}

export function local(port: number | undefined): string {
  return `127.0.0.1:${port ?? 0}`;
}
