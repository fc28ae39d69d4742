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

/** Why, where that has to be said. */
export function reasonOf(input: CommandInput): string {
  const reason = textValue(input, "reason") ?? "";
  if (reason.trim() !== "") return reason;
  throw new UsageError("It needs --reason <text>: why it is done is written down.");
}
