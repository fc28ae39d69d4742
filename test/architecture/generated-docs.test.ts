import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { generatedDocs } from "../../scripts/build-docs.ts";
import { embedMigrations } from "../../scripts/embed-migrations.ts";
import { withMoveGuard } from "../../scripts/move-guard.ts";

test("the pages made from code are current (otherwise: npx tsx --conditions=sagabox:source scripts/build-docs.ts)", async () => {
  for (const [path, text] of Object.entries(await generatedDocs())) {
    expect(readFileSync(new URL(`../../${path}`, import.meta.url), "utf8"), path).toBe(text);
  }
});

test("the migrations are current (otherwise: npx tsx --conditions=sagabox:source scripts/embed-migrations.ts)", () => {
  const { current, expected } = withMoveGuard();
  expect(current).toBe(expected);
  const embedded = new URL("../../src/storage/migrations.generated.ts", import.meta.url);
  expect(readFileSync(embedded, "utf8")).toBe(embedMigrations());
});
