import { environmentVariables, type EnvironmentVariable, type Option } from "../../src/options/index.ts";
import { advice } from "./advice.ts";
import { boundsText, cell, defaultText } from "./option-text.ts";
import { optionSections, type OptionSection } from "./option-sections.ts";
import { readInterface, readTable, type DeclaredOption } from "./read-interface.ts";

export interface OptionRow {
  /** The full name, such as `outbox.batchSize`. */
  readonly path: string;
  readonly declared: DeclaredOption;
  /** The data of the option; undefined if it is declared in an interface. */
  readonly option: Option | undefined;
  /** Bounds that depend on other options, in words. */
  readonly follows: string | undefined;
}

/** Returns every option of a section. */
export function optionRows({ path, tables, follows = {} }: OptionSection): readonly OptionRow[] {
  return tables.flatMap(({ file, name, options, below = "", without = [] }) => {
    const all = options === undefined ? readInterface(file, name) : readTable(file, name);
    return all
      .filter((declared) => !without.includes(declared.name))
      .map((declared) => {
        const local = `${below}${declared.name}`;
        return {
          path: path === "" ? local : `${path}.${local}`,
          declared: { ...declared, name: local },
          option: options?.[declared.name],
          follows: follows[local],
        };
      });
  });
}

/** Returns the tables of the configuration reference by their names on the page. */
export function optionTables(): Readonly<Record<string, readonly string[]>> {
  return Object.fromEntries(
    optionSections.map((section) => [section.table, [...heading, ...optionRows(section).map(line)]]),
  );
}

const heading = [row("Option", "Default", "Bounds", "Meaning and advice"), row("---", "---", "---", "---")];
const variables: readonly EnvironmentVariable[] = Object.values<EnvironmentVariable>(environmentVariables);

function line({ path, declared, option, follows }: OptionRow): string {
  const byDefault = option === undefined ? undefined : defaultText(option);
  const value = option?.isRequired === true ? "required" : (byDefault ?? cell(declared.default ?? "none"));
  const bounds = follows ?? (option === undefined ? typeText(declared.type ?? "") : boundsText(option));
  const variable = variables.find((other) => other.option === option);
  const meaning = [
    declared.meaning,
    advice[path] ?? "",
    variable === undefined ? "" : `Variable: [\`${variable.names[0]}\`](environment.md).`,
  ];
  return row(`\`${declared.name}\``, value, bounds, cell(meaning.filter((text) => text !== "").join(" ")));
}

function typeText(type: string): string {
  return type.includes("=>") ? "a function" : `\`${cell(type.replace(/\breadonly /g, ""))}\``;
}

function row(...cells: string[]): string {
  return `| ${cells.join(" | ")} |`;
}
