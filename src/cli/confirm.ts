import { UsageError, type CommandInput, type CommandOption, type Io } from "./command.ts";
import { safeLines } from "./print.ts";

export const yesOption: CommandOption = {
  type: "boolean",
  help: "Do it. Without it a person at a terminal is asked, and a script is refused.",
};

/**
 * Asks before something that cannot be taken back: `word` has to be typed as it is. With --yes nobody is asked; where
 * nobody can be asked, it is refused. Resolves false when the answer was another one: nothing is to be done then.
 */
export async function confirmed(
  input: CommandInput,
  io: Io,
  { what, word = "yes" }: { readonly what: string; readonly word?: string },
): Promise<boolean> {
  if (input.values["yes"] === true) return true;
  const ask = io.terminal?.ask;
  if (ask === undefined) {
    throw new UsageError(`${what} Nothing was done: add --yes if that is what you want.`);
  }
  const answer = await ask(safeLines(`${what} Type ${word} to go on: `));
  if (answer?.trim() === word) return true;
  io.err("Nothing was done.");
  return false;
}
