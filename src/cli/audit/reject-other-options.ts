import { UsageError, type CommandInput } from "../command.ts";

/** Refuses options that this action does not read. */
export function rejectOtherOptions(input: CommandInput, names: readonly string[]): void {
  const known = [...names, "schema", "json", "help"];
  const stray = Object.keys(input.values).filter((name) => !known.includes(name));
  if (stray.length === 0) return;
  const list = stray.map((name) => `--${name}`).join(", ");
  throw new UsageError(`"sagabox audit ${input.positionals[0] ?? ""}" does not accept ${list}.`);
}
