import { systemClock, type Clock } from "../runtime/index.ts";
import type { Io } from "./command.ts";

export interface Progress {
  /** How far it is. `total` may grow, or be unknown. */
  update(done: number, total?: number, note?: string): void;
  /** Takes the bar away. What was done is for the command to say. */
  end(): void;
}

const DRAW_EVERY_MS = 100;
const PRINT_EVERY_MS = 5_000;
const WIDTH = 24;

/** Long work told on standard error, so that what is printed stays whole: a bar on a screen, else a line now and then. */
export function startProgress(io: Io, what: string, clock: Clock = systemClock): Progress {
  const draw = io.terminal?.draw;
  const startedMs = clock.monotonicMs();
  // Nobody needs a line about work that is done at once; a bar may come immediately.
  let toldMs = draw === undefined ? startedMs : Number.NEGATIVE_INFINITY;
  return {
    update(done, total, note) {
      const nowMs = clock.monotonicMs();
      if (nowMs - toldMs < (draw === undefined ? PRINT_EVERY_MS : DRAW_EVERY_MS)) return;
      toldMs = nowMs;
      const told = [what, countText(done, total), speedText(done, total, nowMs - startedMs), note ?? ""];
      if (draw === undefined) io.err(told.filter((part) => part !== "").join("  "));
      else draw([barText(done, total), ...told].filter((part) => part !== "").join("  "));
    },
    end() {
      draw?.(null);
    },
  };
}

function countText(done: number, total: number | undefined): string {
  return total === undefined ? String(done) : `${done} of ${total}`;
}

function speedText(done: number, total: number | undefined, tookMs: number): string {
  if (tookMs < 1_000 || done === 0) return "";
  const perSecond = (done * 1_000) / tookMs;
  const left = total === undefined ? "" : `, ${Math.ceil(Math.max(0, total - done) / perSecond)} s left`;
  return `${perSecond >= 10 ? Math.round(perSecond) : perSecond.toFixed(1)}/s${left}`;
}

function barText(done: number, total: number | undefined): string {
  if (total === undefined || total <= 0) return "";
  const full = Math.min(WIDTH, Math.floor((WIDTH * done) / total));
  return `${"█".repeat(full)}${"░".repeat(WIDTH - full)}`;
}
