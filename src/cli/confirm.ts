import { UsageError, type CommandInput, type CommandOption, type Io } from "./command.ts";
import { safeLines } from "./print.ts";

export const yesOption: CommandOption = {
  type: "boolean",
  help: "Skip the confirmation. Without it a terminal prompts and a script fails.",
};

export const dryRunOption: CommandOption = { type: "boolean", help: "Only print what would be done." };

/** --dry-run takes precedence over --yes: nothing is changed. */
export function isDryRun({ values }: CommandInput): boolean {
  return values["dry-run"] === true;
}

export interface Confirmation {
  /** One sentence about what will happen. */
  readonly what: string;
  /** The word to type. Default: yes. */
  readonly word?: string;
  /** False if there is nothing to do: a terminal does not prompt then. A script still needs --yes, so that it fails now and not later. */
  readonly matters?: boolean;
}

/**
 * Asks for confirmation before an action that cannot be undone or touches many messages. --yes skips the prompt. Without a
 * terminal and --yes it throws a `UsageError`. Resolves false when the answer is not the expected word.
 */
export async function confirmAction(
  input: CommandInput,
  io: Io,
  { what, word = "yes", matters = true }: Confirmation,
): Promise<boolean> {
  if (input.values["yes"] === true) return true;
  const ask = io.terminal?.ask;
  if (ask === undefined) {
    throw new UsageError(`${what} Nothing was done: add --yes to confirm.`);
  }
  if (!matters) return true;
  const answer = await ask(safeLines(`${what} Type ${word} to continue: `));
  if (answer?.trim() === word) return true;
  io.err("Nothing was done.");
  return false;
}
