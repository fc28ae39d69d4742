import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { toWords } from "./commands/completion.ts";
import { allCommands } from "./run-cli.ts";

const commands = await allCommands();

const script = async (shell: string) => (await cliInProcess(["completion", shell], {})).stdout;

test("bash completes commands, actions and options", async () => {
  const source = await script("bash");
  const completed = (...words: string[]): string[] => {
    const line = `COMP_WORDS=(sagabox ${words.map((word) => `"${word}"`).join(" ")}); COMP_CWORD=${words.length}`;
    const text = execFileSync("bash", [
      "--norc",
      "-c",
      `${source}\n${line}\n_sagabox\nprintf '%s\\n' "\${COMPREPLY[@]}"`,
    ]);
    return text.toString().trim().split("\n");
  };
  expect(completed("out")).toEqual(["outbox"]);
  expect(completed("")).toEqual([...commands.map(({ name }) => name), "help"]);
  expect(completed("outbox", "")).toEqual(["list", "show", "stats", "retry-now", "archive"]);
  expect(completed("saga", "c")).toEqual(["compensate", "cancel", "check"]);
  expect(completed("outbox", "list", "--st")).toEqual(["--state"]);
  expect(completed("outbox", "list", "--state", "")).toEqual([""]);
});

test.each(["zsh", "fish"])("the script for %s knows every command, action and option", async (shell) => {
  const source = await script(shell);
  for (const { name, actions, options } of commands.map(toWords)) {
    for (const word of [name, ...actions, ...options.map((option) => option.name)]) {
      expect(source, `${name} ${word}`).toContain(word);
    }
  }
  // An odd number of quotation marks would leave a text open.
  for (const line of source.split("\n")) expect(line.split("'").length % 2, line).toBe(1);
});

test("a shell that nobody knows is refused with a suggestion", async () => {
  expect(await cliInProcess(["completion", "bsh"], {})).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('Did you mean "bash"?'),
  });
});
