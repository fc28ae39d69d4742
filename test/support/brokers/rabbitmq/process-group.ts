import { existsSync, readFileSync, rmSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";

/** Whether the process group whose leader's id is in this file has a process left. */
export function groupLives(pidFile: string): boolean {
  try {
    process.kill(-Number(readFileSync(pidFile, "utf8")), 0);
    return true;
  } catch {
    return false;
  }
}

/** Signals the process group until it is gone, with SIGKILL in the end. */
export async function endGroup(pidFile: string, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
  if (!existsSync(pidFile)) return;
  const group = -Number(readFileSync(pidFile, "utf8"));
  const began = Date.now();
  let word = signal;
  while (groupLives(pidFile)) {
    try {
      process.kill(group, word);
    } catch {
      break;
    }
    for (let n = 0; n < 100 && groupLives(pidFile); n++) await delay(50);
    if (Date.now() - began > 20_000) word = "SIGKILL";
  }
  rmSync(pidFile, { force: true });
}
