// The command line `sagabox`: one file per command, which parses options, calls admin or app and prints the result.
// command.ts defines the exit codes.
export { runCli } from "./run-cli.ts";
