import { oneOf } from "../../options/index.ts";
import { UsageError, type Command } from "../command.ts";
import { completionScript, shells } from "../completion-scripts.ts";
import { DONE } from "../exit-codes.ts";

/** `commands` is asked late: this command is one of them. */
export function completion(commands: () => Promise<readonly Command[]>): Command {
  return {
    name: "completion",
    summary: "Print the script that lets your shell complete command lines.",
    usage: shells.map((shell) => `completion ${shell}`),
    actions: shells,
    details: `Examples:
  source <(sagabox completion bash)
  sagabox completion zsh > "\${fpath[1]}/_sagabox"
  sagabox completion fish > ~/.config/fish/completions/sagabox.fish`,
    options: {},
    async run(input, io) {
      const [shell, ...rest] = input.positionals;
      if (shell === undefined || rest.length > 0) {
        throw new UsageError(`"sagabox completion" needs one of ${shells.join(", ")}.`);
      }
      io.out(completionScript(oneOf("sagabox completion", shell, shells), await commands()));
      return DONE;
    },
  };
}
