import { findNearest } from "../options/index.ts";
import { UsageError, type CommandInput, type Io } from "./command.ts";

/** A sub-command: `sagabox <command> <action>`. */
export interface Action {
  /** Names of the options it accepts, in addition to --schema, --json and --help. */
  readonly reads: readonly string[];
  /** Describes its one argument for error texts. Absent: the action takes no argument. */
  readonly argument?: string;
  /** True if the argument may be left out. Default false. */
  readonly isOptional?: boolean;
  /** `argument` is the argument after the action, or "" if it was omitted. */
  run(input: CommandInput, io: Io, argument: string): Promise<number>;
}

export type Actions = Readonly<Record<string, Action>>;

/**
 * Runs the action named by the first argument. Throws a `UsageError` for an unknown action, a missing or stray
 * argument, and an option that the action does not accept.
 */
export function runAction(command: string, actions: Actions, input: CommandInput, io: Io): Promise<number> {
  const [name = "", argument = ""] = input.positionals;
  const action = Object.hasOwn(actions, name) ? actions[name] : undefined;
  if (action === undefined) throw new UsageError(describeUnknown(command, name, Object.keys(actions)));
  checkArguments(`sagabox ${command} ${name}`, action, input.positionals.slice(1));
  checkOptions(`sagabox ${command} ${name}`, action, input);
  return action.run(input, io, argument);
}

function checkArguments(called: string, { argument, isOptional }: Action, given: readonly string[]): void {
  const stray = argument === undefined ? given : given.slice(1);
  if (stray.length > 0) {
    throw new UsageError(`"${called}" takes no further argument, but got ${stray.join(" ")}.`);
  }
  if (argument !== undefined && isOptional !== true && (given[0] ?? "") === "") {
    throw new UsageError(`"${called}" needs ${argument}.`);
  }
}

function checkOptions(called: string, { reads }: Action, { values }: CommandInput): void {
  const known = [...reads, "schema", "json", "help"];
  const unread = Object.keys(values).filter((option) => !known.includes(option));
  if (unread.length === 0) return;
  const list = unread.map((option) => `--${option}`).join(", ");
  throw new UsageError(`"${called}" does not accept ${list}.`);
}

function describeUnknown(command: string, action: string, known: readonly string[]): string {
  if (action === "") {
    return `"sagabox ${command}" needs ${known.length === 1 ? "" : "one of "}${known.join(", ")}.`;
  }
  const suggestion = findNearest(action, known);
  const hint = suggestion === undefined ? `Known: ${known.join(", ")}.` : `Did you mean ${suggestion}?`;
  return `"sagabox ${command}" has no action "${action}". ${hint}`;
}
