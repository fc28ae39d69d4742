import { createInterface } from "node:readline";
import type { Terminal } from "./command.ts";
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
