// The command line: one small file per command, each of which says what it does and leaves the work to the rooms
// below. What the exit codes mean is said in exit-codes.ts.
export { runCli } from "./run-cli.ts";
