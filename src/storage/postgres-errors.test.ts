import { expect, test } from "vitest";
import { sessionSurvives, sqlState } from "./postgres-errors.ts";

test("X-03: a broken pipe is no answer of the server, so its connection is not trusted", () => {
  const broken = Object.assign(new Error("write EPIPE"), { code: "EPIPE" });
  expect(sqlState(broken)).toBeUndefined();
  expect(sessionSurvives(broken)).toBe(false);
  expect(sqlState({ code: "23505" })).toBe("23505");
});
