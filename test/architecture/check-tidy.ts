import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { parseSync } from "oxc-parser";
import { projectRoot, isNode, lineAt, walk } from "./source-file.ts";
import type { SourceFile, SyntaxNode, Violation } from "./source-file.ts";

const things = "table|schema|unique|index|or replace|function|view|type|sequence|publication|role|extension";
const objects = `(${things}|database|trigger|temp|temporary|unlogged|materialized|policy|domain)`;
const sqlStarts = [
  "select\\s",
  "insert\\s+into\\s",
  "update\\s+\\S+\\s+(as\\s+\\S+\\s+)?set\\s",
  "delete\\s+from\\s",
  "with\\s+(recursive\\s+)?\\w+\\s+(\\([^)]*\\)\\s+)?as\\s",
  `(create|alter|drop)\\s+${objects}\\s`,
  "(grant|revoke)\\s+\\w+.*\\s(on|to|from)\\s",
  "truncate\\s",
  "lock\\s+table\\s",
].join("|");
// Keywords are all small or all capital; a sentence for people starts with one capital.
const sql = new RegExp(
  `^\\s*(--.*\\n\\s*)*(${sqlStarts}|${sqlStarts.replaceAll(/(?<!\\)[a-z]/g, (c) => c.toUpperCase())})`,
);

export function mayHoldSql(path: string): boolean {
  return /(^|\/)(statements\.ts|[\w-]+-statements\.ts|statements\/.*|migrations\/.*|.*\.generated\.ts)$/.test(
    path,
  );
}

/** SQL text outside the files made for it. */
export function checkSql(file: SourceFile): Violation[] {
  if (mayHoldSql(file.path)) return [];
  const found: Violation[] = [];
  walk(file, (node) => {
    const text = readText(node);
    if (text === undefined || !sql.test(text)) return;
    const line = lineAt(file.text, node.start);
    found.push({ path: file.path, line, problem: "holds SQL; move it to the room's statements.ts" });
  });
  return found;
}

function readText(node: SyntaxNode): string | undefined {
  if (node.type === "Literal" && typeof node["value"] === "string") return node["value"];
  if (node.type !== "TemplateLiteral" || !Array.isArray(node["quasis"])) return undefined;
  return node["quasis"].map((quasi: { value: { raw: string } }) => quasi.value.raw).join("x");
}

const timers = ["setTimeout", "setInterval", "setImmediate"];
const chance = ["randomUUID", "randomBytes", "randomInt", "randomFillSync", "getRandomValues"];
const members = ["Date.now", "performance.now", "Math.random", "process.hrtime"];
const ambient = [...members, ...chance.map((name) => `crypto.${name}`)];

/** Clocks, timers and chance outside the room runtime, where nothing could replace them. */
export function checkAmbient(file: SourceFile): Violation[] {
  if (file.path.startsWith("src/runtime/")) return [];
  const found: Violation[] = [];
  walk(file, (node, parent) => {
    const used = ambientUse(node, parent);
    if (used === undefined) return;
    const line = lineAt(file.text, node.start);
    found.push({ path: file.path, line, problem: `uses ${used}; take it from src/runtime instead` });
  });
  return found;
}

function ambientUse(node: SyntaxNode, parent: SyntaxNode): string | undefined {
  switch (node.type) {
    case "MemberExpression":
      return ambient.find((name) => name === `${readName(node["object"])}.${readName(node["property"])}`);
    case "NewExpression":
    case "CallExpression": {
      const now = readName(node["callee"]) === "Date" && (node["arguments"] as unknown[]).length === 0;
      return now ? "the current date" : undefined;
    }
    case "ImportDeclaration":
      return importedAmbient(node);
    case "Identifier":
      return isFreeName(node, parent) ? timers.find((name) => name === node["name"]) : undefined;
    default:
      return undefined;
  }
}

function importedAmbient(node: SyntaxNode): string | undefined {
  const source = (node["source"] as { value: string }).value;
  if (/^(node:)?timers(\/promises)?$/.test(source)) return source;
  if (!/^(node:)?crypto$/.test(source) || !Array.isArray(node["specifiers"])) return undefined;
  return node["specifiers"]
    .map((one: SyntaxNode) => readName(one["imported"]))
    .find((name) => chance.includes(name));
}

/** Not the name of a property (`timers.setTimeout`, `{ setTimeout: … }`), which may have any name. */
function isFreeName(node: SyntaxNode, parent: SyntaxNode): boolean {
  return parent["property"] !== node && parent["key"] !== node;
}

function readName(node: unknown): string {
  return isNode(node) && typeof node["name"] === "string" ? node["name"] : "";
}

export function checkRoomComment({ path, text }: SourceFile): Violation[] {
  return /^(\/\/|\/\*)/.test(text) ? [] : [{ path, line: 1, problem: "does not say what the room is for" }];
}

/** Finds each use of a phrase of the old dialect; words are compared as wholes, without regard to case. */
export function checkPhrases({ path, text }: SourceFile, phrases: readonly string[]): Violation[] {
  const pattern = new RegExp(`\\b(${phrases.join("|")})\\b`, "gi");
  return [...text.matchAll(pattern)].map((hit) => ({
    path,
    line: lineAt(text, hit.index),
    problem: `says "${hit[0].toLowerCase()}"; see the words in docs/glossary.md`,
  }));
}

/** Finds comments that begin with "The same": an editor shows one comment at a time, so each must stand alone. */
export function checkSameComments({ path, text }: SourceFile): Violation[] {
  return parseSync(path, text).comments.flatMap(({ value, start }) =>
    value
      .split("\n")
      .flatMap((line, index) =>
        /^\W*The same\b/.test(line)
          ? [{ path, line: lineAt(text, start) + index, problem: 'has a comment that begins "The same"' }]
          : [],
      ),
  );
}

/** Marks of unfinished work, and tests that do not run or keep others from running. */
export function checkUnfinished(file: SourceFile): Violation[] {
  const marks = [
    /\b(TO-?DO|FIX-?ME|XXX)\b/,
    /\b(test|it|describe)\.(skip|only|todo|fails)\b/,
    /@ts-(ignore|nocheck)/,
  ];
  return file.text.split("\n").flatMap((text, index) => {
    const mark = marks.map((pattern) => pattern.exec(text)?.[0]).find((hit) => hit !== undefined);
    return mark === undefined ? [] : [{ path: file.path, line: index + 1, problem: `says ${mark}` }];
  });
}

/** Relative links in Markdown that lead nowhere. Code blocks hold no links. */
export function checkLinks({ path, text }: SourceFile): Violation[] {
  const prose = text.replaceAll(/```[^]*?```|`[^`\n]*`/g, (code) => code.replaceAll(/[^\n]/g, " "));
  return [...prose.matchAll(/\]\(([^)\s]+)(?:\s+"[^"]*")?\)/g)].flatMap((link) => {
    const target = decodeURI(link[1] ?? "").replace(/#.*$/, "");
    if (target === "" || /^[a-z]+:/.test(target)) return [];
    const base = target.startsWith("/") ? projectRoot : dirname(join(projectRoot, path));
    if (existsSync(join(base, target))) return [];
    return [{ path, line: lineAt(prose, link.index), problem: `links to ${target}, which does not exist` }];
  });
}
