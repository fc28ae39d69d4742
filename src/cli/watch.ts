import { sleep } from "../runtime/index.ts";
import { textValue, UsageError, type CommandInput, type CommandOption, type Io } from "./command.ts";
import { runInterruptible } from "./stop-signals.ts";

export const watchOption: CommandOption = {
  type: "string",
  value: "[seconds]",
  alone: "2",
  help: "Refresh until Ctrl-C, every 2 seconds by default.",
};

/** Escape sequence that clears the screen. */
const CLEAR = "\u001b[H\u001b[2J\u001b[3J";

/**
 * Prints the text that `look` returns: once, or with --watch repeatedly until Ctrl-C, on a cleared screen if standard
 * output is a terminal. Returns the exit code of the last look, which may stop early when its signal aborts.
 */
export async function printOrWatch(
  input: CommandInput,
  io: Io,
  look: (signal?: AbortSignal) => Promise<{ readonly text: string; readonly code: number }>,
): Promise<number> {
  const seconds = watchSeconds(input);
  if (seconds === undefined) {
    const { text, code } = await look();
    io.out(text);
    return code;
  }
  return runInterruptible(io, async (signal) => {
    let code = 0;
    do {
      const seen = await look(signal);
      const cleared = io.terminal?.out === true && input.values["json"] !== true;
      io.out(cleared ? `${CLEAR}${seen.text}` : seen.text);
      code = seen.code;
    } while (await sleep(seconds * 1_000, signal));
    return code;
  });
}

function watchSeconds(input: CommandInput): number | undefined {
  const text = textValue(input, "watch");
  if (text === undefined) return undefined;
  const seconds = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
  if (!(seconds >= 0.1 && seconds <= 86_400)) {
    throw new UsageError("--watch must be a number of seconds from 0.1 to 86400.");
  }
  return seconds;
}
