import type { Server } from "./server.ts";

/** What every measurement is given. */
export interface Bench {
  readonly server: Server;
  readonly rounds: number;
  /** Smaller sizes, for a look while developing. */
  readonly quick: boolean;
  /** Prints a progress line, never on stdout. */
  readonly say: (line: string) => void;
  /** What cannot be measured here, and why. */
  readonly leaveOut: (what: string, reason: string) => void;
}

/** A full size, or the smaller one of a quick run. */
export function size(bench: Bench, full: number, quick: number): number {
  return bench.quick ? quick : full;
}
