import { createInterface } from "node:readline";
import { type Clock, systemClock } from "../runtime/index.ts";
import type { Io, Terminal } from "./command.ts";
import { safeLines } from "./print.ts";

interface Streams {
  readonly stdin: NodeJS.ReadStream;
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
}

/** Describes the terminal of this process: which of its streams are interactive. */
export function createTerminal({ stdin, stdout, stderr }: Streams): Terminal {
  const draw = (line: string | null): void => {
    const shown = line === null ? "" : safeLines(line).slice(0, Math.max(10, stderr.columns - 1));
    stderr.write(`\r\u001b[2K${shown}`);
  };
  const ask = (question: string): Promise<string | undefined> =>
    new Promise((resolve) => {
      const lines = createInterface({ input: stdin, output: stderr, terminal: true });
      lines.on("SIGINT", () => lines.close());
      lines.once("close", () => resolve(undefined));
      lines.question(question, (answer) => {
        resolve(answer);
        lines.close();
      });
    });
  return {
    out: stdout.isTTY,
    get columns() {
      return stdout.isTTY && stdout.columns > 0 ? stdout.columns : undefined;
    },
    ...(stderr.isTTY ? { draw } : {}),
    ...(stdin.isTTY && stderr.isTTY ? { ask } : {}),
  };
}

export interface Progress {
  /** Reports `done` of `total` items. `total` may grow, or be unknown. */
  update(done: number, total?: number, note?: string): void;
  /** Erases the bar. The command prints the result. */
  end(): void;
}

const DRAW_EVERY_MS = 100;
const PRINT_EVERY_MS = 5_000;
const WIDTH = 24;

/** Shows progress on standard error: a bar on a terminal, otherwise one line every 5 seconds. */
export function startProgress(io: Io, what: string, clock: Clock = systemClock): Progress {
  const draw = io.terminal?.draw;
  const startedMs = clock.monotonicMs();
  // Short work prints no line; a bar appears immediately.
  let printedMs = draw === undefined ? startedMs : Number.NEGATIVE_INFINITY;
  return {
    update(done, total, note) {
      const nowMs = clock.monotonicMs();
      if (nowMs - printedMs < (draw === undefined ? PRINT_EVERY_MS : DRAW_EVERY_MS)) return;
      printedMs = nowMs;
      const parts = [what, countText(done, total), speedText(done, total, nowMs - startedMs), note ?? ""];
      if (draw === undefined) io.err(parts.filter((part) => part !== "").join("  "));
      else draw([barText(done, total), ...parts].filter((part) => part !== "").join("  "));
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
