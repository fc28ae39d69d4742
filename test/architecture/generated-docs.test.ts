import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { generatedDocs } from "../../scripts/build-docs.ts";

test("the pages made from code are current (otherwise: npx tsx --conditions=sagabox:source scripts/build-docs.ts)", async () => {
  for (const [path, text] of Object.entries(await generatedDocs())) {
    expect(readFileSync(new URL(`../../${path}`, import.meta.url), "utf8"), path).toBe(text);
  }
});
