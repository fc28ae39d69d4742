import type { Figures } from "./figures.ts";

export interface ViewOptions {
  readonly figures: Figures;
  /** Lines that do not change: addresses, where the data is. */
  readonly about: readonly string[];
  readonly out: NodeJS.WriteStream;
}

const EVERY_MS = { terminal: 1_000, lines: 5_000 };
const HIDE_CURSOR = "\u001b[?25l";
const SHOW_CURSOR = "\u001b[?25h";

/** The live view: redrawn in place on a terminal, one line every five seconds anywhere else. Returns its end. */
export function showFigures({ figures, about, out }: ViewOptions): () => void {
  // Written once and above the rest: a command to copy must not be cut off, however narrow the terminal is.
  for (const line of about) out.write(`${line}\n`);
  if (!out.isTTY) {
    const timer = setInterval(() => out.write(`${oneLine(figures)}\n`), EVERY_MS.lines);
    return () => clearInterval(timer);
  }
  let drawn = 0;
  const draw = (): void => {
    const lines = ["", ...page(figures)].map((line) => fitLine(line, out.columns));
    out.write(`${drawn === 0 ? HIDE_CURSOR : `\u001b[${drawn}A\u001b[J`}${lines.join("\n")}\n`);
    drawn = lines.length;
  };
  draw();
  const timer = setInterval(draw, EVERY_MS.terminal);
  return () => {
    clearInterval(timer);
    draw();
    out.write(SHOW_CURSOR);
  };
}

function page(figures: Figures): string[] {
  const { total, open, pending, oldestMs, deadLetters, trouble } = figures;
  const rates = figures.rates();
  const row = (name: string, rate: number, count: number): string =>
    `  ${name.padEnd(22)}${rate.toFixed(1).padStart(7)} /s${String(count).padStart(13)}`;
  const formatFact = (name: string, value: string): string => `  ${name.padEnd(22)}${value}`;
  return [
    `sagabox shop, up ${duration(figures.uptimeMs)}`,
    "",
    `  ${"".padEnd(22)}${"now".padStart(10)}${"since start".padStart(13)}`,
    row("orders placed", rates.orders, total.orders),
    row("orders billed", rates.billed, total.billed),
    row("orders shipped", rates.shipped, total.shipped),
    row("sagas completed", rates.completed, total.completed),
    row("sagas compensated", rates.compensated, total.compensated),
    "",
    formatFact("sagas running", `${open.running}, and ${open.failed} that wait for a person`),
    formatFact("waiting to be sent", `${pending}, the oldest for ${duration(oldestMs)}`),
    formatFact("sent at once", share(figures.optimisticShare)),
    formatFact("duplicates", `${duplicates(figures)} (every 20 s the last second is sent again)`),
    formatFact("dead letters", String(deadLetters)),
    formatFact("last trouble", trouble),
  ];
}

function oneLine(figures: Figures): string {
  const { total, open, pending, oldestMs, deadLetters } = figures;
  const rates = figures.rates();
  return [
    `up ${duration(figures.uptimeMs)}`,
    `orders ${total.orders} (${rates.orders.toFixed(1)}/s)`,
    `billed ${total.billed} (${rates.billed.toFixed(1)}/s)`,
    `shipped ${total.shipped} (${rates.shipped.toFixed(1)}/s)`,
    `sagas completed ${total.completed}, compensated ${total.compensated}, running ${open.running}, failed ${open.failed}`,
    `pending ${pending}, oldest ${duration(oldestMs)}`,
    `sent at once ${share(figures.optimisticShare)}`,
    `duplicates ${duplicates(figures)}`,
    `dead letters ${deadLetters}`,
  ].join(" | ");
}

function duplicates(figures: Figures): string {
  return `sent on purpose ${figures.readSentAgain()}, suppressed ${figures.duplicates}`;
}

function share(value: number | undefined): string {
  return value === undefined ? "none yet" : `${(value * 100).toFixed(1)} %`;
}

function duration(ms: number): string {
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60
    ? `${minutes} min ${seconds % 60} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// A line that wraps would take two rows, and the next drawing would begin one too low.
function fitLine(line: string, columns: number): string {
  return columns > 0 && line.length > columns ? `${line.slice(0, columns - 1)}…` : line;
}
