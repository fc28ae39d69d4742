import type { Rule, RuleFile } from "./rule-files.ts";

const UNITS_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const DURATION = /\b(\d+)([smhd])\b/g;

/**
 * Returns the rules with all times divided by `factor`: every window, offset and `for` is that much shorter, and so
 * is every threshold on an age in seconds. Nothing else changes, names and other thresholds least of all.
 */
export function faster({ groups }: RuleFile, factor: number): RuleFile {
  return {
    groups: groups.map(({ name, rules }) => ({ name, rules: rules.map((rule) => fasterRule(rule, factor)) })),
  };
}

function fasterRule(rule: Rule, factor: number): Rule {
  const expr = fasterQuery(rule.expr, factor);
  return rule.for === undefined ? { ...rule, expr } : { ...rule, expr, for: shorter(rule.for, factor) };
}

export function fasterQuery(query: string, factor: number): string {
  return query
    .replace(/\[[^\]]+\]/g, (window) => shorter(window, factor))
    .replace(/\boffset\s+\d+[smhd]\b/g, (offset) => shorter(offset, factor))
    .replace(
      /(_age_seconds(?::max)?\s*>\s*)(\d+)/g,
      (_, left: string, age: string) => left + Number(age) / factor,
    );
}

function shorter(text: string, factor: number): string {
  return text.replace(
    DURATION,
    (_, count: string, unit: string) => `${Math.round((Number(count) * (UNITS_MS[unit] ?? 0)) / factor)}ms`,
  );
}
