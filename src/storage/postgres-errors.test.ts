import { expect, test } from "vitest";
import { migrateRemedy, sessionSurvives, sqlState } from "./postgres-errors.ts";

test("X-03: a broken pipe is no answer of the server, so its connection is not trusted", () => {
  const broken = Object.assign(new Error("write EPIPE"), { code: "EPIPE" });
  expect(sqlState(broken)).toBeUndefined();
  expect(sessionSurvives(broken)).toBe(false);
  expect(sqlState({ code: "23505" })).toBe("23505");
});

test("whoever named another schema is told to name it to the command too", () => {
  expect(migrateRemedy('"sagabox"')).toBe("Run `sagabox migrate up`, or call bus.migrate()");
  expect(migrateRemedy('"sagabx"')).toContain("run `sagabox migrate up --schema sagabx`");
});
