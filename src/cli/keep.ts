import { milliseconds, type Duration } from "../options/index.ts";
import { textValue, UsageError, type CommandInput, type CommandOption } from "./command.ts";

export const keepOption: CommandOption = {
  type: "string",
  value: "<time>",
  help: "Retention, as configured in the service: 30d.",
};

/** Reads the required --keep. It has no default, because the service may be configured with another retention. */
export function readKeep(input: CommandInput): Duration {
  const keep = textValue(input, "keep");
  if (keep === undefined)
    throw new UsageError("Add --keep <time>, such as --keep 30d: everything older is removed.");
  milliseconds("--keep", keep, { max: 36_500 * 86_400_000 });
  return keep as Duration;
}
