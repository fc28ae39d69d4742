import fc from "fast-check";
import { expect, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { pgDatabase } from "./drivers/pg.ts";
import { defineStatement, toArrayLiteral } from "./statement.ts";

const asTexts = defineStatement("test.texts", "select to_json($1::text::text[])::text as json");
const asNumbers = defineStatement("test.numbers", "select to_json($1::text::bigint[])::text as json");

// PostgreSQL cannot store these; payloads and headers with them are refused long before.
const storable = fc
  .oneof(
    fc.string(),
    fc.string({ unit: "binary" }),
    fc.constantFrom("", "NULL", "null", "{}", '"', "\\", ",", " a "),
  )
  .filter((text) => !text.includes("\u0000") && Buffer.from(text).toString() === text);

test("any list of texts and nulls arrives in PostgreSQL as it was", async () => {
  const { pool } = await temporaryDatabase();
  const database = pgDatabase(pool);
  await fc.assert(
    fc.asyncProperty(fc.array(fc.option(storable), { maxLength: 20 }), async (values) => {
      const { rows } = await database.run<{ json: string }>(asTexts, [toArrayLiteral(values)]);
      expect(JSON.parse(rows[0]?.json ?? "")).toEqual(values);
    }),
    { numRuns: 500 },
  );
});

test("numbers, big ones included, arrive as numbers", async () => {
  const { pool } = await temporaryDatabase();
  const { rows } = await pgDatabase(pool).run<{ json: string }>(asNumbers, [
    toArrayLiteral([0, -1, 9_223_372_036_854_775_807n, null]),
  ]);
  expect(rows[0]?.json).toBe("[0,-1,9223372036854775807,null]");
});

test("the same name with another text is another prepared statement on the same connection", async () => {
  const { pool } = await temporaryDatabase({ max: 1 });
  const database = pgDatabase(pool);
  const answers = [];
  for (const value of [1, 2]) {
    const { rows } = await database.run<{ n: number }>(
      defineStatement("test.same", `select ${value}::int as n`),
    );
    answers.push(rows[0]?.n);
  }
  expect(answers).toEqual([1, 2]);
});
