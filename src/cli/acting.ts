import { textValue, UsageError, type CommandInput, type CommandOption, type Io } from "./command.ts";

export const actorOption: CommandOption = {
  type: "string",
  value: "<name>",
  help: "Who does it. Default: USER.",
};
export const reasonOption: CommandOption = {
  type: "string",
  value: "<text>",
  help: "Why, for the audit log.",
};

/** Who does it. It is written down. */
export function actorOf(input: CommandInput, io: Io, otherwise = ""): string {
  const actor = textValue(input, "actor") ?? io.env["USER"] ?? otherwise;
  if (actor.trim() !== "") return actor;
  throw new UsageError("It needs --actor <name>, or USER in the environment: who does it is written down.");
}

/** Who does it and why, for what can be looked at first. */
export function decidedBy(input: CommandInput, io: Io): { readonly actor: string; readonly reason: string } {
  const hint = " With --dry-run it only says what it would do.";
  return { actor: actorOf(input, io), reason: reasonOf(input, hint) };
}

/** Why, where that has to be said. */
export function reasonOf(input: CommandInput, hint = ""): string {
  const reason = textValue(input, "reason") ?? "";
  if (reason.trim() !== "") return reason;
  throw new UsageError(`It needs --reason <text>: why it is done is written down.${hint}`);
}
