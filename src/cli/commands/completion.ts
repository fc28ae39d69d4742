import { oneOf } from "../../options/index.ts";
import { type Command, DONE, UsageError } from "../command.ts";

/** Builds the completion command. `commands` is a function, because the list contains this command too. */
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

/** The words that a shell can complete for one command. */
interface CommandWords {
  readonly name: string;
  readonly summary: string;
  readonly actions: readonly string[];
  readonly options: readonly { readonly name: string; readonly help: string; readonly takesValue: boolean }[];
}

const shells = ["bash", "zsh", "fish"] as const;
type Shell = (typeof shells)[number];

export function toWords({ name, summary, actions = [], options }: Command): CommandWords {
  const all = Object.entries(options).map(([option, { help, type }]) => ({
    name: option,
    help,
    takesValue: type === "string",
  }));
  return { name, summary, actions, options: [...all, helpOption] };
}

const helpOption = { name: "help", help: "Print this help.", takesValue: false };

function completionScript(shell: Shell, commands: readonly Command[]): string {
  const words = commands.map(toWords);
  return { bash: bashScript, zsh: zshScript, fish: fishScript }[shell](words);
}

function bashScript(commands: readonly CommandWords[]): string {
  return `# bash completion for sagabox. Load it with: source <(sagabox completion bash)
_sagabox() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]} words=
  if (( COMP_CWORD == 1 )); then
    COMPREPLY=($(compgen -W "${commands.map(({ name }) => name).join(" ")} help" -- "$current"))
    return
  fi
  case \${COMP_WORDS[1]} in
    help) words="${commands.map(({ name }) => name).join(" ")}" ;;
${commands.map(bashCase).join("\n")}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _sagabox sagabox`;
}

function bashCase({ name, actions, options }: CommandWords): string {
  const valued = options.filter(({ takesValue }) => takesValue).map((option) => `--${option.name}`);
  const files = valued.length === 0 ? "" : `case $previous in ${valued.join("|")}) return ;; esac; `;
  const first = actions.length === 0 ? "" : `(( COMP_CWORD == 2 )) && words="${actions.join(" ")}"; `;
  const flags = options.map((option) => `--${option.name}`).join(" ");
  return `    ${name}) ${files}${first}[[ $current == -* ]] && words="${flags}" ;;`;
}

function zshScript(commands: readonly CommandWords[]): string {
  const described = commands.map(({ name, summary }) => `    ${quoteForShell(`${name}:${summary}`)}`);
  return `#compdef sagabox
# zsh completion for sagabox. Load it with: source <(sagabox completion zsh)
_sagabox() {
  local -a commands=(
${described.join("\n")}
    'help:Describe a command.'
  )
  if (( CURRENT == 2 )); then
    _describe 'command' commands
    return
  fi
  case $words[2] in
    help) _describe 'command' commands ;;
${commands.map(zshCase).join("\n")}
  esac
}
compdef _sagabox sagabox`;
}

function zshCase({ name, actions, options }: CommandWords): string {
  const flags = options.map((option) => quoteForShell(`--${option.name}:${option.help}`)).join(" ");
  const first = actions.length === 0 ? "" : `(( CURRENT == 3 )) && compadd -- ${actions.join(" ")}; `;
  return `    ${name}) ${first}local -a flags=(${flags}); if [[ $PREFIX == -* ]]; then _describe 'option' flags; else _files; fi ;;`;
}

function fishScript(commands: readonly CommandWords[]): string {
  const lines = commands.flatMap(({ name, summary, actions, options }) => [
    `complete -c sagabox -n __fish_use_subcommand -f -a ${name} -d ${quoteForShell(summary)}`,
    ...(actions.length === 0
      ? []
      : [
          `complete -c sagabox -n '__fish_seen_subcommand_from ${name}; and not __fish_seen_subcommand_from ${actions.join(" ")}' ` +
            `-f -a '${actions.join(" ")}'`,
        ]),
    ...options.map(
      (option) =>
        `complete -c sagabox -n '__fish_seen_subcommand_from ${name}' -l ${option.name} ` +
        `${option.takesValue ? "-r " : ""}-d ${quoteForShell(option.help)}`,
    ),
  ]);
  return ["# fish completion for sagabox. Load it with: sagabox completion fish | source", ...lines].join(
    "\n",
  );
}

/** Quotes the text as one word for bash, zsh and fish. */
function quoteForShell(text: string): string {
  return `'${text.replaceAll("'", "’").replaceAll("\\", "")}'`;
}
