import { UsageError, type CommandInput, type CommandOption, type Io } from "./command.ts";
import { safeLines } from "./print.ts";

export const yesOption: CommandOption = {
  type: "boolean",
  help: "Do it. Without it a person at a terminal is asked, and a script is refused.",
};

export const dryRunOption: CommandOption = { type: "boolean", help: "Only say what would be done." };

/** With --dry-run nothing is done, whatever else is given. */
export function isDryRun({ values }: CommandInput): boolean {
  return values["dry-run"] === true;
}

export interface Confirmation {
  readonly what: string;
  /** What has to be typed, as it is. */
  readonly word?: string;
  /** There is something to do. A person is not asked about nothing; a script is refused all the same, not one day later. */
  readonly matters?: boolean;
}

/**
 * Asks before something that cannot be taken back, or touches many messages. With --yes nobody is asked; where nobody can
 * be asked, it is refused. Resolves false when the answer was another one: nothing is to be done then.
 */
export async function confirmAction(
  input: CommandInput,
  io: Io,
  { what, word = "yes", matters = true }: Confirmation,
): Promise<boolean> {
  if (input.values["yes"] === true) return true;
  const ask = io.terminal?.ask;
  if (ask === undefined) {
    throw new UsageError(`${what} Nothing was done: add --yes if that is what you want.`);
  }
  if (!matters) return true;
  const answer = await ask(safeLines(`${what} Type ${word} to go on: `));
  if (answer?.trim() === word) return true;
  io.err("Nothing was done.");
  return false;
}
