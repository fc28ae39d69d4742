import { milliseconds, type Duration } from "../options/index.ts";
import { textValue, UsageError, type CommandInput, type CommandOption } from "./command.ts";

export const keepOption: CommandOption = {
  type: "string",
  value: "<time>",
  help: "How long things are kept, as the service has it: 30d.",
};

/** There is no default: the one of this version may not be what the service was given. */
export function readKeep(input: CommandInput): Duration {
  const keep = textValue(input, "keep");
  if (keep === undefined)
    throw new UsageError("It needs --keep <time>, such as --keep 30d: what is older goes.");
  milliseconds("--keep", keep, { max: 36_500 * 86_400_000 });
  return keep as Duration;
}
