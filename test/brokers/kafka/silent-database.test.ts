import { describe, test } from "vitest";
import { expectTakeOverAndReturn } from "../../support/silent-database.ts";
import { missing, newPrefix, createTransport } from "./harness.ts";

describe.skipIf(missing)("a silent database", () => {
  test("a worker that cannot reach its database leaves its messages to others and comes back by itself", async () => {
    const prefix = newPrefix();
    await expectTakeOverAndReturn(() => createTransport({ prefix }));
  }, 240_000);
});
