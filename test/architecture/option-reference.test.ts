import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  environmentVariables,
  readEnvironment,
  unknownVariables,
  type EnvironmentVariable,
} from "../../src/options/index.ts";
import { advice } from "../../scripts/reference/advice.ts";
import { optionRows } from "../../scripts/reference/option-tables.ts";
import { optionSections } from "../../scripts/reference/option-sections.ts";
import { filesBelow, projectRoot } from "./source-file.ts";

const rows = optionSections.flatMap(optionRows);

test("G11: every option that is declared is in the reference, with a meaning", () => {
  const page = readFileSync(join(projectRoot, "docs/reference/configuration.md"), "utf8");
  expect(rows.length).toBeGreaterThan(130);
  for (const { table } of optionSections) expect(page).toContain(`<!-- table: ${table} -->`);
  const bare = rows.filter(({ path, declared }) => declared.meaning === "" && advice[path] === undefined);
  expect(bare.map(({ path }) => path)).toEqual([]);
});

test("G11: advice is about options that exist", () => {
  const paths = rows.map(({ path }) => path);
  expect(Object.keys(advice).filter((path) => !paths.includes(path))).toEqual([]);
});

test("G11: a default that a comment names is the one the parser uses", () => {
  const literal = /^(?:"([^"]*)"|([\d,]+)|(true|false))$/;
  const named = rows.flatMap(({ path, declared, option }) => {
    const [, text, digits, truth] = literal.exec(declared.default ?? "") ?? [];
    const said = text ?? (digits === undefined ? truth : digits.replaceAll(",", ""));
    return said === undefined || option?.default === undefined ? [] : [{ path, said, used: option.default }];
  });
  expect(named.length).toBeGreaterThan(40);
  const wrong = named.filter(
    ({ said, used }) => said !== used && said !== JSON.stringify(used) && inMs(said) !== used,
  );
  expect(wrong).toEqual([]);
});

test("G11: a default of the environment is a value that the environment accepts", () => {
  for (const { names, option } of Object.values<EnvironmentVariable>(environmentVariables)) {
    if (option.default === undefined) continue;
    expect(
      Object.keys(readEnvironment({ [names[0]]: String(option.default as string | number | boolean) })),
      names[0],
    ).toHaveLength(1);
  }
});

test("every SAGABOX_ variable that a page, script or test names is read by sagabox, so none provokes its warning", () => {
  const files = [".ts", ".mjs", ".md", ".yml", ".yaml", "run"].flatMap((ends) => filesBelow(".", ends));
  const named = files
    .filter(({ path }) => !path.startsWith("src/"))
    .flatMap(({ path, text }) => [...text.matchAll(/\bSAGABOX_[A-Z]\w*/g)].map(([name]) => ({ path, name })));
  expect(named.length).toBeGreaterThan(150);
  expect(named.filter(({ name }) => unknownVariables({ [name]: "x" }).length > 0)).toEqual([]);
});

test("a default is a value that its option accepts", () => {
  for (const { path, option } of rows) {
    if (option?.default !== undefined) expect(() => option.check(path, option.default), path).not.toThrow();
  }
});

function inMs(said: string): number {
  const [, count = "", unit = ""] = /^(\d+)(ms|s|m|h|d)$/.exec(said) ?? [];
  const sizes: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  return Number(count) * (sizes[unit] ?? Number.NaN);
}
