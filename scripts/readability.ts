// Measures how readable src/ is and prints each figure before the language pass of 0.1.0 and now.
// Exits with 1 when a goal is missed. Long files and functions are warnings only.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { countLoadedModules, measureFiles, readSources } from "./readability/measure.ts";

interface Row {
  readonly what: string;
  readonly before: string;
  readonly now: number;
  readonly unit?: string;
  readonly goal: number;
}

const MAX_WARNINGS = 20;

const root = join(import.meta.dirname, "..");
const sources = readSources(root);
const figures = measureFiles(sources);
const { functions, bareParticiples } = figures;
const statements = readFileSync(join(root, "docs/reference/statements.sql"), "utf8");

const rows: readonly Row[] = [
  {
    what: "functions named by a bare participle",
    before: "6.6 %",
    now: percent(bareParticiples, functions),
    unit: "%",
    goal: 1,
  },
  { what: "functions named …Of", before: "350", now: figures.ofNames, goal: 60 },
  { what: "comment lines without a subject", before: "582", now: figures.vagueComments, goal: 20 },
  { what: 'comments that begin "The same"', before: "57", now: figures.sameComments, goal: 0 },
  {
    what: "files with exactly one importer",
    before: "45 %",
    now: percent(figures.singleImporters, figures.modules),
    unit: "%",
    goal: 25,
  },
  { what: "files under 40 lines, index files aside", before: "176", now: figures.shortFiles, goal: 60 },
  {
    what: 'modules loaded by import "sagabox"',
    before: "542",
    now: countLoadedModules(sources, "src/index.ts"),
    goal: 420,
  },
];

for (const line of formatRows(rows)) console.log(line);
console.log(`\n${figures.files} files, ${figures.lines} lines, ${functions} functions.`);
console.log(`SQL statements readable as final text: ${countStatements(statements)} (0 before).`);
console.log("Files visited from publish to acknowledgement: npm run readability:walk (105 before, goal 60).");
printWarnings(figures.warnings);

const missed = rows.filter(({ now, goal }) => now > goal);
if (missed.length > 0) console.error(`\nMissed: ${missed.map(({ what }) => what).join("; ")}.`);
process.exit(missed.length === 0 ? 0 : 1);

function percent(part: number, whole: number): number {
  return Math.round((1000 * part) / whole) / 10;
}

/** Counts the comments in statements.sql that name a statement; sentences and headings do not look like names. */
function countStatements(text: string): number {
  return text.match(/^-- [\w.-]+(: .*)?$/gm)?.length ?? 0;
}

function formatRows(list: readonly Row[]): string[] {
  const withUnit = (figure: number, { unit }: Row): string =>
    unit === undefined ? String(figure) : `${figure} ${unit}`;
  const cells = list.map((row) => [
    row.what,
    row.before,
    withUnit(row.now, row),
    `<= ${withUnit(row.goal, row)}`,
    row.now > row.goal ? "MISSED" : "ok",
  ]);
  const table = [["", "before", "now", "goal", ""], ...cells];
  const widths = table[0]?.map((_, column) => Math.max(...table.map((row) => row[column]?.length ?? 0)));
  return table.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths?.[column] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}

function printWarnings(warnings: readonly string[]): void {
  if (warnings.length === 0) return;
  console.log(`\n${warnings.length} warnings:`);
  for (const warning of warnings.slice(0, MAX_WARNINGS)) console.log(`  ${warning}`);
  if (warnings.length > MAX_WARNINGS) console.log(`  … and ${warnings.length - MAX_WARNINGS} more`);
}
