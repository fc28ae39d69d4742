import { findNearest } from "../options/index.ts";
import { UsageError, type CommandInput, type Io } from "./command.ts";

/** A sub-command: `sagabox <command> <action>`. */
export interface Action {
  /** Names of the options it accepts, in addition to --schema, --json and --help. */
  readonly reads: readonly string[];
  /** Describes its one required argument for error texts. Absent: the action takes no argument. */
  readonly argument?: string;
  run(input: CommandInput, io: Io): Promise<number>;
}

/** Runs the action named by the first argument. Throws a `UsageError` for an unknown action, a stray argument or an option that the action does not accept. */
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
    throw new UsageError(
      `"sagabox ${command} ${name}" takes no further argument, but got ${stray.join(" ")}.`,
    );
  }
  if (action.argument !== undefined && (argument ?? "") === "") {
    throw new UsageError(`"sagabox ${command} ${name}" needs ${action.argument}.`);
  }
  const known = [...action.reads, "schema", "json", "help"];
  const unread = Object.keys(input.values).filter((option) => !known.includes(option));
  if (unread.length > 0) {
    const list = unread.map((option) => `--${option}`).join(", ");
    throw new UsageError(`"sagabox ${command} ${name}" does not accept ${list}.`);
  }
  return action.run(input, io);
}

function actionProblem(command: string, action: string, known: readonly string[]): string {
  if (action === "") return `"sagabox ${command}" needs one of ${known.join(", ")}.`;
  const suggestion = findNearest(action, known);
  const hint = suggestion === undefined ? `Known: ${known.join(", ")}.` : `Did you mean ${suggestion}?`;
  return `"sagabox ${command}" has no action "${action}". ${hint}`;
}
