import { expect, test } from "vitest";
import { explainPostgresError, migrateRemedy, sessionSurvives, sqlState } from "./postgres-errors.ts";

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

const permissionError = (what: string) =>
  Object.assign(new Error(`permission denied for ${what}`), { code: "42501" });

test.each(["schema sagabox", "table outbox", "table message_20261117", "function outbox_retry_now"])(
  "a right to our %s that lacks is told with the role that has it",
  (what) => {
    for (const needs of ["writer", "consumer"] as const)
      expect(explainPostgresError(permissionError(what), '"sagabox"', needs)).toMatchObject({
        code: "STORAGE_PERMISSION_DENIED",
        message: expect.stringContaining(`grant sagabox_${needs} to`) as string,
      });
  },
);

test("a right to a table of the user's own that lacks is the user's: the error stays as it is", () => {
  const error = permissionError("table secret");
  expect(explainPostgresError(error, '"sagabox"', "writer")).toBe(error);
  expect(explainPostgresError(error, '"sagabox"', "consumer")).toBe(error);
});
