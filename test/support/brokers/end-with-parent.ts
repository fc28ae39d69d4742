import type { ChildProcess } from "node:child_process";
import { rmSync } from "node:fs";

export interface ProcessOptions {
  /**
   * In a process group of its own, so that Ctrl-C, which reaches every process of a terminal, leaves it to us; and gone with
   * its folder when we end, however suddenly.
   */
  readonly apart?: boolean;
}

/** Ends the group that the child leads, at the latest when this process ends. */
export function endWithParent(child: ChildProcess, folder: string): void {
  const group = child.pid;
  if (group === undefined) return; // it never started
  const end = (): void => {
    if (!sendSignal(group, "SIGKILL")) return;
    try {
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
    } catch {
      // A process that is only just dying may have written there once more.
    }
  };
  process.once("exit", end);
  child.once("exit", () => {
    if (!sendSignal(group, 0)) process.off("exit", end);
  });
}

function sendSignal(group: number, signal: "SIGKILL" | 0): boolean {
  try {
    return process.kill(-group, signal);
  } catch {
    return false;
  }
}
