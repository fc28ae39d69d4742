import { expectTypeOf, test } from "vitest";
import { withDeadline } from "./index.ts";

test("the fallback's type joins the promise's", () => {
  expectTypeOf(withDeadline(Promise.resolve(1), 10, () => "late")).toEqualTypeOf<Promise<number | string>>();
});

test("a fallback that always throws adds nothing", () => {
  const result = withDeadline(Promise.resolve(1), 10, () => {
    throw new Error("late");
  });
  expectTypeOf(result).toEqualTypeOf<Promise<number>>();
});
