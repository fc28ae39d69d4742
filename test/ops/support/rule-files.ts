import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";

export interface Rule {
  readonly alert?: string;
  readonly record?: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

export interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
}

export const prometheusFolder = fileURLToPath(new URL("../../../ops/prometheus", import.meta.url));

/** The files in ops/prometheus/rules by name. */
export function ruleFiles(): ReadonlyMap<string, RuleFile> {
  const folder = join(prometheusFolder, "rules");
  const read = (name: string): RuleFile => parse(readFileSync(join(folder, name), "utf8")) as RuleFile;
  return new Map(readdirSync(folder).map((name) => [name, read(name)]));
}

export function allRules(): Rule[] {
  return [...ruleFiles().values()].flatMap(({ groups }) => groups.flatMap(({ rules }) => rules));
}

/** The names of all alerts. */
export function alertNames(): string[] {
  return allRules().flatMap(({ alert }) => alert ?? []);
}
