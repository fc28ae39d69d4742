import { posix } from "node:path";
import { expect, test } from "vitest";
import { checkRooms, checkUi } from "./check-rooms.ts";
import { rooms } from "./rooms.ts";
import { filesBelow, isTest, readImports, show } from "./source-file.ts";

const sources = filesBelow("src", ".ts").filter(({ path }) => !isTest(path));

function problems(path: string, text: string): string[] {
  return show(checkRooms({ path, text }));
}

test("every file imports only what its room may know", () => {
  expect(sources.length).toBeGreaterThan(20);
  expect(show(sources.flatMap(checkRooms))).toEqual([]);
});

test("the table names only rooms that the table knows", () => {
  const named = Object.values(rooms).flatMap((room) => room.rooms);
  expect(named.filter((name) => !Object.hasOwn(rooms, name))).toEqual([]);
});

test("no two rooms may import each other", () => {
  const pairs = Object.entries(rooms).flatMap(([name, room]) =>
    room.rooms.map((other) => [name, other] as const),
  );
  expect(pairs.filter(([name, other]) => rooms[other]?.rooms.includes(name))).toEqual([]);
});

/** Every file that importing `entry` loads at once; `import()` loads later. */
function loadedBy(entry: string): ReadonlySet<string> {
  const byPath = new Map(sources.map((file) => [file.path, file]));
  const loaded = new Set<string>();
  const visit = (path: string): void => {
    const file = byPath.get(path);
    if (file === undefined || loaded.has(path)) return;
    loaded.add(path);
    for (const { specifier, typeOnly, isDynamic } of readImports(file))
      if (!typeOnly && !isDynamic && specifier.startsWith("."))
        visit(posix.join(posix.dirname(path), specifier));
  };
  visit(entry);
  return loaded;
}

test('`import "sagabox"` loads no file of admin, and at most 420 files', () => {
  const loaded = [...loadedBy("src/index.ts")];
  expect(loaded).toContain("src/app/bus.ts");
  expect(loaded.filter((path) => path.startsWith("src/admin/"))).toEqual([]);
  expect(loaded.length).toBeLessThanOrEqual(420);
});

test("a planted import of a higher room is found, with its line and what would be allowed", () => {
  expect(problems("src/retry/x.ts", '// one\nimport { a } from "../saga/index.ts";\n')).toEqual([
    "src/retry/x.ts:2 imports the room saga; retry may import: errors, options, runtime",
  ]);
});

test.each(["audit", "dead-letter", "privacy", "outbox", "inbox", "lanes", "transport"])(
  "the command line goes through admin: a planted import of %s is found",
  (room) => {
    const text = `import { a } from "../../${room}/index.ts";`;
    expect(problems("src/cli/dlq/x.ts", text)).toEqual([expect.stringContaining(`imports the room ${room}`)]);
  },
);

test.each([
  ['import type { A } from "../saga/index.ts";', "imports the room saga"],
  ['export * from "../saga/index.ts";', "imports the room saga"],
  ['const saga = await import("../saga/index.ts");', "imports the room saga"],
  ['import { a } from "../errors/catalogue.ts";', "reaches into errors/catalogue.ts"],
  ['import { a } from "../errors/index.js";', "without its ending .ts"],
  ['import { a } from "../../test/support/database.ts";', "which is no room"],
  ['import pg from "pg";', "imports the package pg; packages retry may import: none"],
  ['import { bus } from "sagabox";', "imports the package sagabox"],
])("planted in the room retry, %s is found", (text, problem) => {
  expect(problems("src/retry/x.ts", text)).toEqual([expect.stringContaining(problem)]);
});

test("a package allowed for its types may not be run", () => {
  expect(problems("src/message/x.ts", 'import type { A } from "@standard-schema/spec";')).toEqual([]);
  expect(problems("src/message/x.ts", 'import { a } from "@standard-schema/spec";')).toHaveLength(1);
});

test("an import in a comment or a string does not count", () => {
  const text = '// import { a } from "../saga/index.ts";\nexport const text = \'import "pg"\';\n';
  expect(problems("src/retry/x.ts", text)).toEqual([]);
});

test("a file in a folder the table does not know is found", () => {
  expect(problems("src/utils/x.ts", "")).toEqual([expect.stringContaining("belongs to no room")]);
});

test("the pages of the dashboard know only their own files and the types of the API", () => {
  const pages = [...filesBelow("ui/src", ".ts"), ...filesBelow("ui/src", ".tsx")].filter(
    ({ path }) => !isTest(path),
  );
  expect(pages.length).toBeGreaterThan(20);
  expect(show(pages.flatMap(checkUi))).toEqual([]);
});

test.each([
  'import { routes } from "../../../src/dashboard/routes.ts";',
  'import { Role } from "../../../src/dashboard/api-types.ts";',
  'import { readFileSync } from "node:fs";',
  'import React from "react";',
])("planted in a page, %s is found", (text) => {
  expect(checkUi({ path: "ui/src/pages/x.tsx", text })).toHaveLength(1);
});
