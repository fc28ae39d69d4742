import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
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
import { filesBelow, isTest, projectRoot, show } from "./source-file.ts";

const sources = filesBelow("src", ".ts").filter(({ path }) => !isTest(path));
const everything = filesBelow(".", ".ts").filter(({ path }) => !path.endsWith(".generated.ts"));

test("SQL stands in statements and migrations only", () => {
  expect(sources.length).toBeGreaterThan(20);
  expect(show(sources.flatMap(checkSql))).toEqual([]);
});

test("clocks, timers and chance come from the room runtime only", () => {
  expect(show(sources.flatMap(checkAmbient))).toEqual([]);
});

test("every room has an index whose first line says what the room is for", () => {
  const doors = sources.filter(({ path }) => /^src\/([\w-]+|transports\/[\w-]+)\/index\.ts$/.test(path));
  expect(show(doors.flatMap(checkRoomComment))).toEqual([]);
  const rooms = readdirSync(join(projectRoot, "src"), { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && entry.name !== "transports")
    .map((entry) => entry.name);
  expect(rooms.filter((room) => !existsSync(join(projectRoot, "src", room, "index.ts")))).toEqual([]);
});

test("nothing is marked as unfinished, no test is skipped or alone", () => {
  const watched = everything.filter(({ path }) => !path.startsWith("test/architecture/"));
  expect(show(watched.flatMap(checkUnfinished))).toEqual([]);
});

test("relative links in Markdown lead somewhere", () => {
  expect(show(filesBelow(".", ".md").flatMap(checkLinks))).toEqual([]);
});

/** Phrases that docs/glossary.md replaces by plain words. */
const phrases = JSON.parse(readFileSync(join(import.meta.dirname, "phrases.json"), "utf8")) as string[];

test("no source and no page uses a phrase that the glossary replaces", () => {
  const pages = filesBelow(".", ".md");
  expect(pages.length).toBeGreaterThan(50);
  expect(show([...sources, ...pages].flatMap((file) => checkPhrases(file, phrases)))).toEqual([]);
});

test('no comment begins with "The same"', () => {
  expect(show(sources.flatMap(checkSameComments))).toEqual([]);
});
