import { findNearest } from "../options/index.ts";
import { UsageError, type CommandInput, type Io } from "./command.ts";

/** One of the things that a command can do: `sagabox <command> <action>`. */
export interface Action {
  /** The options it reads besides --schema and --json. */
  readonly reads: readonly string[];
  /** What its one argument is, where it takes one. */
  readonly argument?: string;
  run(input: CommandInput, io: Io): Promise<number>;
}

/** Runs the action that the first argument names, once everything on the command line is known to be meant for it. */
export function runAction(
  command: string,
  actions: Readonly<Record<string, Action>>,
  input: CommandInput,
  io: Io,
): Promise<number> {
  const [name = "", argument, ...rest] = input.positionals;
  const action = Object.hasOwn(actions, name) ? actions[name] : undefined;
  if (action === undefined) throw new UsageError(actionProblem(command, name, Object.keys(actions)));
  const stray = action.argument === undefined ? input.positionals.slice(1) : rest;
  if (stray.length > 0) {
    throw new UsageError(`"sagabox ${command} ${name}" has no use for the argument ${stray.join(" ")}.`);
  }
  if (action.argument !== undefined && (argument ?? "") === "") {
    throw new UsageError(`"sagabox ${command} ${name}" needs ${action.argument}.`);
  }
  const known = [...action.reads, "schema", "json", "help"];
  const unread = Object.keys(input.values).filter((option) => !known.includes(option));
  if (unread.length > 0) {
    const list = unread.map((option) => `--${option}`).join(", ");
    throw new UsageError(`"sagabox ${command} ${name}" does not read ${list}.`);
  }
  return action.run(input, io);
}

function actionProblem(command: string, action: string, known: readonly string[]): string {
  if (action === "") return `"sagabox ${command}" needs one of ${known.join(", ")}.`;
  const suggestion = findNearest(action, known);
  const hint = suggestion === undefined ? `Known are: ${known.join(", ")}.` : `Did you mean ${suggestion}?`;
  return `"sagabox ${command}" cannot do "${action}". ${hint}`;
}
