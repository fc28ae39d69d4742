import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { filesBelow, projectRoot } from "./source-file.ts";

const testName =
  /\b(?:test|it|describe)(?:\.\w+)*(?:\((?:[^()]|\([^()]*\))*\))?\(\s*(["'`])((?:(?!\1)[^\\]|\\.)*)\1/g;
const code = /\b(?:[A-I]\d{1,2}|(?:SEC|[A-Z])-\d{2}c?)\b/g;

test("every requirement code in a test name is explained in docs/requirements.md", () => {
  const page = readFileSync(join(projectRoot, "docs/requirements.md"), "utf8");
  const explained = new Set([...page.matchAll(/^\| ([A-Z]+-?\d+c?) +\|/gm)].map(([, name]) => name));
  const used = [...filesBelow("src", ".ts"), ...filesBelow("test", ".ts")].flatMap(({ path, text }) =>
    [...text.matchAll(testName)].flatMap(([, , name = ""]) =>
      [...name.matchAll(code)].map(([found]) => ({ path, code: found })),
    ),
  );
  expect(used.length).toBeGreaterThan(300);
  expect(used.filter((use) => !explained.has(use.code))).toEqual([]);
});
