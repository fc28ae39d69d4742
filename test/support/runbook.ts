import { readFileSync } from "node:fs";
import { cliInProcess } from "./run-cli.ts";

type Fill = Readonly<Record<string, string>>;

export interface RunCommand {
  /** As it stands in the page. */
  readonly command: string;
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A page of docs/runbooks, whose commands are run as they are written there. */
export class Runbook {
  readonly #sections: ReadonlyMap<string, readonly Block[]>;
  readonly #env: Readonly<Record<string, string>>;
  readonly #followed = new Set<string>();

  constructor(name: string, databaseUrl: string, env: Readonly<Record<string, string>> = {}) {
    this.#sections = parseSections(readRunbook(name));
    this.#env = { DATABASE_URL: databaseUrl, USER: "ann", ...env };
  }

  /** Runs the commands below a heading one after the other; `<message-id>` in them becomes what `fill` says. */
  async follow(heading: string, fill: Fill = {}): Promise<readonly RunCommand[]> {
    const results: RunCommand[] = [];
    for (const command of this.#commands(heading)) results.push(await this.#run(heading, command, fill));
    return results;
  }

  /** Runs one command below a heading, the first or the one of that place, with more arguments behind it. */
  async step(heading: string, place = 0, fill: Fill = {}, ...more: readonly string[]): Promise<RunCommand> {
    const command = this.#commands(heading)[place];
    if (command === undefined) throw new Error(`There is no command ${place + 1} below "${heading}".`);
    return this.#run(heading, command, fill, more);
  }

  /** All commands below a heading, which have to succeed; all that was printed. */
  async done(heading: string, fill: Fill = {}): Promise<string> {
    const results = await this.follow(heading, fill);
    const failed = results.find(({ code }) => code !== 0);
    if (failed !== undefined) {
      throw new Error(`${failed.command} ended with ${failed.code}:\n${failed.stdout}${failed.stderr}`);
    }
    return results.map(({ stdout }) => stdout).join("\n");
  }

  /** The statements below a heading. */
  sql(heading: string, fill: Fill = {}): readonly string[] {
    return this.#blocks(heading, "sql").map((text) => {
      this.#followed.add(noteHeading(heading, text));
      return fillPlaceholders(text, fill);
    });
  }

  /** Commands and statements that were not run: steps that no test covers. */
  get forgotten(): readonly string[] {
    return [...this.#sections.keys()]
      .flatMap((heading) =>
        [...this.#blocks(heading, "sh").flatMap(commandLines), ...this.#blocks(heading, "sql")].map((text) =>
          noteHeading(heading, text),
        ),
      )
      .filter((one) => !this.#followed.has(one));
  }

  async #run(
    heading: string,
    command: string,
    fill: Fill,
    more: readonly string[] = [],
  ): Promise<RunCommand> {
    this.#followed.add(noteHeading(heading, command));
    const [, ...args] = words(fillPlaceholders(command, fill));
    return { command, ...(await cliInProcess([...args, ...more], this.#env)) };
  }

  #commands(heading: string): readonly string[] {
    const commands = this.#blocks(heading, "sh").flatMap(commandLines);
    if (commands.length === 0) throw new Error(`There is no command below "${heading}".`);
    return commands;
  }

  #blocks(heading: string, wanted: string): readonly string[] {
    const blocks = this.#sections.get(heading);
    if (blocks === undefined) throw new Error(`The page has no heading "${heading}".`);
    return blocks.filter(({ language }) => language === wanted).map(({ text }) => text);
  }
}

function noteHeading(heading: string, text: string): string {
  return `${heading}: ${text}`;
}

interface Block {
  readonly language: string;
  readonly text: string;
}

export function readRunbook(name: string): string {
  return readFileSync(new URL(`../../docs/runbooks/${name}.md`, import.meta.url), "utf8");
}

/** Every command line of a page. */
export function parseCommands(page: string): readonly (readonly string[])[] {
  const blocks = [...parseSections(page).values()].flat().filter(({ language }) => language === "sh");
  return blocks.flatMap(({ text }) => commandLines(text).map(words));
}

function parseSections(page: string): Map<string, readonly Block[]> {
  const sections = page.split(/^#{2,3} /m).slice(1);
  return new Map(
    sections.map((section) => {
      const [heading = ""] = section.split("\n", 1);
      const blocks = [...section.matchAll(/^```(\w+)\n([^]*?)^```/gm)];
      return [heading, blocks.map(([, language = "", text = ""]) => ({ language, text }))];
    }),
  );
}

function commandLines(text: string): readonly string[] {
  return text
    .replaceAll("\\\n", " ")
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));
}

function fillPlaceholders(text: string, fill: Fill): string {
  return text.replace(/<([a-z-]+)>/g, (placeholder, name: string) => {
    const value = fill[name];
    if (value === undefined) throw new Error(`No value is given for ${placeholder} in: ${text}`);
    return value;
  });
}

/** As a shell would split it, as far as the pages go: spaces, and quotes around what has some. */
function words(line: string): readonly string[] {
  return [...line.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)].map(([, a, b, c]) => a ?? b ?? c ?? "");
}
