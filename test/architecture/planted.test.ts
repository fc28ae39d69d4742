import { expect, test } from "vitest";
import {
  checkAmbient,
  checkLinks,
  checkPhrases,
  checkRoomComment,
  checkSameComments,
  checkSql,
  checkUnfinished,
} from "./check-tidy.ts";

// A checker that finds nothing passes for ever. Each rule is shown a violation here and has to see it.

const path = "src/outbox/relay.ts";

test.each([
  'const q = "select 1";',
  "const q = `\n  select id from ${schema}.outbox`;",
  "const q = `update ${schema}.relay_lane set owner = $1`;",
  "const q = `update ${schema}.relay_lane as owned\n set owner = $1`;",
  "const q = `with due as materialized (select 1) select 2`;",
  "const q = `-- why\n  delete from ${schema}.outbox`;",
  'const q = "INSERT INTO outbox VALUES (1)";',
  'const q = "create unique index on outbox (seq)";',
  'const q = "ALTER TABLE outbox ADD x int";',
  'f("drop schema " + name);',
  'const q = "truncate outbox";',
])("SQL outside statements is seen in %s", (text) => {
  expect(checkSql({ path, text })).toMatchObject([
    { path, problem: expect.stringContaining("statements.ts") },
  ]);
});

test.each([
  'const m = "Select a transport first.";',
  'const m = "update the schema";',
  'const m = "with care";',
  'const m = "create a bus";',
  "// select 1\nexport {};",
  'type Kind = "select" | "update";',
])("words for people are no SQL: %s", (text) => {
  expect(checkSql({ path, text })).toEqual([]);
});

test("statements, migrations and generated files may hold SQL", () => {
  const text = 'const q = "select 1";';
  const homes = ["src/outbox/statements.ts", "src/storage/migrations/a.ts", "src/storage/x.generated.ts"];
  expect(homes.flatMap((home) => checkSql({ path: home, text }))).toEqual([]);
});

test.each([
  "const t = Date.now();",
  "const t = new Date();",
  "const t = Date();",
  "const now = Date.now;",
  "const t = performance.now();",
  "const r = Math.random();",
  "setTimeout(f, 1);",
  "globalThis.x = setInterval;",
  "setImmediate(f);",
  "const id = crypto.randomUUID();",
  'import { randomBytes } from "node:crypto";',
  'import { randomUUID as id } from "crypto";',
  'import { setTimeout as wait } from "node:timers/promises";',
])("ambient time or chance is seen in %s", (text) => {
  expect(checkAmbient({ path, text }).length).toBeGreaterThan(0);
  expect(checkAmbient({ path: "src/runtime/x.ts", text })).toEqual([]);
});

test.each([
  "const d = new Date(ms);",
  'import { createHash } from "node:crypto";',
  'import { randomBytes } from "../runtime/index.ts";',
  "timers.setTimeout(f);",
  "// Date.now()\nexport {};",
])("what is handed in may be used: %s", (text) => {
  expect(checkAmbient({ path, text })).toEqual([]);
});

test("the line of a violation is reported", () => {
  expect(checkAmbient({ path, text: "\n\nconst t = Date.now();" })[0]?.line).toBe(3);
});

test("an index that starts with code is seen", () => {
  expect(checkRoomComment({ path, text: 'export * from "./x.ts";' })).toHaveLength(1);
  expect(checkRoomComment({ path, text: "// The room for x.\n" })).toEqual([]);
});

test.each(["// TODO later", "test.skip('x', f)", "describe.only('x', f)", "// @ts-ignore"])(
  "%s is seen",
  (text) => {
    expect(checkUnfinished({ path, text })).toHaveLength(1);
  },
);

test("a broken link is seen; anchors, addresses and code are left alone", () => {
  const text =
    "[a](nowhere.md) [b](#here) [c](https://example.org/x) `[d](gone.md)`\n```\n[e](gone.md)\n```\n";
  expect(checkLinks({ path: "README.md", text })).toMatchObject([{ line: 1, problem: /nowhere\.md/ }]);
  expect(checkLinks({ path: "docs/x.md", text: "[p](../package.json)" })).toEqual([]);
});

test("a phrase of the old dialect is seen in code, comments and docs; parts of words are left alone", () => {
  const text = "// The relay.\n// Whoever has it in hand.\n";
  expect(checkPhrases({ path, text }, ["whoever", "in hand"])).toMatchObject([
    { line: 2, problem: /whoever/ },
    { line: 2, problem: /in hand/ },
  ]);
  expect(checkPhrases({ path, text: "// in handlers" }, ["in hand"])).toEqual([]);
});

test.each(["// The same for sagas.", "/** The same for BEGIN. */", "/**\n * The same again.\n */"])(
  "a comment that begins with The same is seen: %s",
  (text) => {
    expect(checkSameComments({ path, text: `${text}\nf();` })).toHaveLength(1);
    expect(checkSameComments({ path, text: 'f("The same"); // At the same time.' })).toEqual([]);
  },
);
