import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { catalogue } from "../../src/errors/index.ts";

const page = readFileSync(new URL("../../docs/reference/errors.md", import.meta.url), "utf8");
const sections = page
  .split(/^## /m)
  .slice(1)
  .map((section) => {
    const [code = "", ...body] = section.split("\n");
    return { code: code.trim(), body: body.join("\n").trim() };
  });

test("the catalogue and the errors page list the same codes, each once", () => {
  expect(sections.map((section) => section.code).sort()).toEqual(Object.keys(catalogue).sort());
});

test("each section of the errors page opens with the catalogue's sentence", () => {
  const opening = Object.fromEntries(sections.map(({ code, body }) => [code, body.split("\n")[0]]));
  expect(opening).toEqual(catalogue);
});

test.each(sections)("$code says its cause and its remedy", ({ body }) => {
  expect(body).toMatch(/^- \*\*Cause:\*\* .{10,}/m);
  expect(body).toMatch(/^- \*\*Remedy:\*\* .{10,}/m);
});
