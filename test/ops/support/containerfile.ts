export interface Instruction {
  readonly word: string;
  readonly value: string;
}

/** The instructions of a Containerfile in order, continued lines joined and comments left out. */
export function instructionsIn(text: string): Instruction[] {
  return text
    .split("\n")
    .filter((line) => !line.startsWith("#"))
    .join("\n")
    .replaceAll(/\\\n\s*/g, "")
    .split("\n")
    .flatMap((line) => {
      const [, word, value] = /^([A-Z]+)\s+(.*)$/.exec(line) ?? [];
      return word === undefined || value === undefined ? [] : [{ word, value }];
    });
}

/** What the last stage, the one that becomes the image, says. */
export class Image {
  readonly #instructions: readonly Instruction[];

  constructor(text: string) {
    const all = instructionsIn(text);
    this.#instructions = all.slice(all.findLastIndex(({ word }) => word === "FROM"));
  }

  last(word: string): string {
    return this.#instructions.findLast((one) => one.word === word)?.value ?? "";
  }

  list(word: string): string[] {
    return JSON.parse(this.last(word)) as string[];
  }

  get environment(): Record<string, string> {
    const pairs = this.#instructions
      .filter(({ word }) => word === "ENV")
      .flatMap(({ value }) => value.split(/\s+/));
    return Object.fromEntries(pairs.map((pair) => pair.split("=", 2) as [string, string]));
  }
}
