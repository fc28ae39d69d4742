import { expect, test } from "vitest";
import { cliInProcess } from "../../test/support/run-cli.ts";
import manifest from "../../package.json" with { type: "json" };

const cli = (...args: string[]) => cliInProcess(args, {});

test.each(["version", "--version", "-v"])("sagabox %s prints the version", async (word) => {
  expect(await cli(word)).toEqual({ code: 0, stdout: `${manifest.version}\n`, stderr: "" });
});

test("an option before any command is told as one, with the nearest there is", async () => {
  expect(await cli("--hlep")).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/^sagabox: There is no option --hlep\. Did you mean --help\?\n/),
  });
  expect((await cli("--json", "status")).stderr).toContain("Options of a command follow its name.");
});

test("who and why are asked for at once", async () => {
  expect((await cli("outbox", "retry-now", "m-1")).stderr).toContain(
    'Add --actor "$(whoami)" --reason "why": the audit log records who acted and why.',
  );
  expect((await cli("saga", "cancel", "s-1")).stderr).toContain('Add --actor "$(whoami)" --reason "why"');
  expect((await cli("dlq", "discard", "7", "--actor", "ann")).stderr).toContain(
    'Add --reason "why": the audit log',
  );
});

test("a group that cannot be one is told by the name of its option", async () => {
  for (const action of ["replay", "list", "discard"]) {
    const { code, stderr } = await cli("dlq", action, "--group", "zzz");
    expect(stderr).toMatch(/^sagabox: --group must be the id of a group/);
    expect(code).toBe(2);
  }
});

test.each([
  ["republish", "--from", "soon", "--to", "1h", "--dry-run"],
  ["audit", "list", "--since", "soon"],
  ["dlq", "list", "--since", "soon"],
])("%s %s: a time is a day, a moment, or how long ago", async (...args) => {
  expect(await cli(...args)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("or a duration before now: 30m, 2h, 3d."),
  });
});
