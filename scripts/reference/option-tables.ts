import { listChecks, type OptionCheck } from "../../src/options/index.ts";
import { advice } from "./advice.ts";
import { boundsText, cell, defaultText } from "./option-text.ts";
import { optionSections, type OptionSection } from "./option-sections.ts";
import { readInterface, type DeclaredOption } from "./read-interface.ts";

export interface OptionRow {
  /** Its full name, such as `outbox.batchSize`. */
  readonly path: string;
  readonly declared: DeclaredOption;
  /** What its parser did when nobody said anything. */
  readonly byDefault: OptionCheck | undefined;
  /** What its parser holds it to. */
  readonly check: OptionCheck | undefined;
  /** Bounds that follow from other options. */
  readonly follows: string | undefined;
}

/** Every option of a section, as declared and as parsed. */
export function optionRows(section: OptionSection): readonly OptionRow[] {
  const { path, interfaces, read, sample, checkedAs = path, follows = {}, given = [] } = section;
  const byDefault = listChecks(read);
  const sampled = [...byDefault, ...listChecks(sample ?? read)];
  return interfaces.flatMap(({ file, name, below = "", without = [] }) =>
    readInterface(file, name)
      .filter((declared) => !without.includes(declared.name))
      .map((declared) => {
        const local = `${below}${declared.name}`;
        const wanted = checkedAs === "" ? local : `${checkedAs}.${local}`;
        const of = (list: readonly OptionCheck[]) => list.find((check) => check.name === wanted);
        return {
          path: path === "" ? local : `${path}.${local}`,
          declared: { ...declared, name: local },
          byDefault: given.includes(local) ? undefined : of(byDefault),
          check: of(sampled),
          follows: follows[local],
        };
      }),
  );
}

/** The tables of the configuration reference, by the names that stand in the page. */
export function optionTables(): Readonly<Record<string, readonly string[]>> {
  return Object.fromEntries(
    optionSections.map((section) => [section.table, [...heading, ...optionRows(section).map(line)]]),
  );
}

const heading = [row("Option", "Default", "Bounds", "Meaning and advice"), row("---", "---", "---", "---")];

function line({ path, declared, byDefault, check, follows }: OptionRow): string {
  const isDefault = byDefault !== undefined && byDefault.value !== undefined && !declared.isRequired;
  const without = declared.isRequired ? "required" : "none";
  const value = isDefault ? defaultText(byDefault) : cell(declared.default ?? without);
  const bounds = follows ?? (check === undefined ? typeText(declared.type) : boundsText(check));
  const meaning = [declared.meaning, advice[path] ?? ""].filter((text) => text !== "").join(" ");
  return row(`\`${declared.name}\``, value, bounds, cell(meaning));
}

// What is no plain value is described by its type, as far as people can read it.
function typeText(type: string): string {
  if (type.includes("=>")) return "a function";
  return type.startsWith("{") ? "an object" : `\`${cell(type.replace(/\breadonly /g, ""))}\``;
}

function row(...cells: string[]): string {
  return `| ${cells.join(" | ")} |`;
}
