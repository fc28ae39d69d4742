import { expect, test } from "vitest";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { someDeadLetters } from "../../test/support/dead-letters.ts";

const place = { type: "order.placed", topic: "events.order.placed" };

async function setup() {
  const { pool, url } = await temporaryDatabase({ max: 5, migrated: true });
  await someDeadLetters(pool, place, [{ consumer: "billing", letters: 3, error: "'late'" }]);
  const env = { DATABASE_URL: url, USER: "ann" };
  const script = (...args: string[]) => cliInProcess(["dlq", ...args], env);
  const person = (answer: string, ...args: string[]) =>
    cliInProcess(["dlq", ...args], env, {
      terminal: { out: true, ask: () => Promise.resolve(answer) },
    });
  const open = async () =>
    (await pool.query("select 1 from sagabox.dead_letter where closed_at is null")).rowCount;
  return { script, person, open };
}

test("a script that forgets --yes is refused, with what would have been done on standard error", async () => {
  const { script, open } = await setup();
  expect(await script("replay", "--all")).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/--reason "why".* With --dry-run the command only prints/) as string,
  });
  const replay = await script("replay", "--all", "--reason", "fixed");
  expect(replay).toMatchObject({ code: 2, stdout: "" });
  expect(replay.stderr).toMatch(
    /^group [^]*3 dead letters are sent back to where they failed\. Nothing was done: add --yes/,
  );
  const discard = await script("discard", "--all", "--reason", "x", "--json");
  expect(discard).toMatchObject({ code: 2, stdout: "" });
  expect(discard.stderr).toMatch(/^group [^]*3 dead letters are closed permanently.* add --yes/);
  expect(await open()).toBe(3);
});

test("a person at a terminal is asked before many letters are closed", async () => {
  const { person, open } = await setup();
  const all = ["discard", "--all", "--reason", "x"];
  expect(await person("no", ...all)).toMatchObject({ code: 4, stdout: "" });
  expect(await open()).toBe(3);
  expect(await person("no", ...all, "--dry-run")).toMatchObject({ code: 0 });
  expect(await person("yes", ...all)).toMatchObject({ code: 0, stdout: "3 dead letters were discarded.\n" });
  expect(await open()).toBe(0);
});
