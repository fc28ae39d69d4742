// The command line: one small file per command, each of which says what it does and leaves the work to the rooms
// below. Exit code 0 means done, 1 means it failed, 2 means the command line or the environment makes no sense.
export { runCli } from "./run-cli.ts";
