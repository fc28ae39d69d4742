import { expect, test, vi } from "vitest";
import { auditHarness } from "../../test/support/audit.ts";
import { cliInProcess } from "../../test/support/run-cli.ts";

vi.setConfig({ testTimeout: 60_000 });

async function setup() {
  const house = await auditHarness();
  await house.lines(2);
  await house.audit.recordDone(house.database, {
    actor: "ada\u001b[31m",
    action: "test.done",
    target: { kind: "test", id: "1\r\nforged" },
    reason: "\u202Ebecause",
  });
  await house.final();
  const cli = (...args: string[]) => cliInProcess(["audit", ...args], { DATABASE_URL: house.url });
  return { ...house, cli };
}

test("SEC-20: list shows lines in columns or as JSON, filtered, and obeys no escape in them", async () => {
  const { cli } = await setup();
  const all = await cli("list", "--all");
  expect(all).toMatchObject({ code: 0, stderr: "" });
  const [head, , ...rows] = all.stdout.trimEnd().split("\n");
  expect(head).toMatch(/^at +who +what +target +outcome +change +why$/);
  expect(rows).toHaveLength(3);
  for (const steering of ["\u001b", "\r", "\u202e"]) expect(all.stdout).not.toContain(steering);
  expect((await cli("list", "--saga", "nobody")).stdout).toBe("No matching entries in the audit log.\n");
  const page = await cli("list", "--saga", "s-1", "--limit", "1");
  const cursor = /--after (\S+)/.exec(page.stdout)?.[1] ?? "";
  const next = await cli("list", "--saga", "s-1", "--after", cursor, "--json");
  expect(JSON.parse(next.stdout)).toMatchObject({
    lines: [
      {
        log: "saga",
        action: "saga.step_executed",
        target: { kind: "saga", id: "s-1" },
        saga: { version: 1 },
      },
    ],
  });
  expect(JSON.parse((await cli("list", "--target", "test", "--json")).stdout)).toMatchObject({
    lines: [{ action: "test.done" }],
  });
});

test("audit list and republish take a time that is so long ago", async () => {
  const { cli, url } = await setup();
  const count = async (...args: string[]) =>
    (JSON.parse((await cli("list", "--json", ...args)).stdout) as { lines: unknown[] }).lines.length;
  expect(await count("--since", "2h")).toBe(1);
  expect(await count("--until", "2h")).toBe(0);
  const window = ["republish", "--from", "2h", "--to", "30m", "--dry-run"];
  expect(await cliInProcess(window, { DATABASE_URL: url })).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("0 message(s) of the window would go out again."),
  });
});

test("list shows what people did, and what sagas did by themselves only when asked", async () => {
  const { cli, pool } = await setup();
  await pool.query(
    `insert into sagabox.saga_audit_log (saga_id, version, event_type, cause, user_id, reason, trace_id)
     values ('s-1', 3, 'noted', 'operator', 'bob', 'ticket 7', 't')`,
  );
  const actions = async (...args: string[]): Promise<string[]> => {
    const { stdout } = await cli("list", "--json", ...args);
    return (JSON.parse(stdout) as { lines: { action: string }[] }).lines.map(({ action }) => action);
  };
  expect(await actions()).toEqual(["saga.noted", "test.done"]);
  expect(await actions("--all")).toHaveLength(4);
  expect(await actions("--saga", "s-1")).toHaveLength(3);
  expect((await cli("list")).stdout).toMatch(
    /^Steps that sagas took on their own are left out; --all shows them\.$/m,
  );
  expect((await cli("list", "--all")).stdout).not.toContain("left out");
});

test("SEC-19: verify is 0 when all is whole and 3 when something was changed, and names it", async () => {
  const { cli, tamper } = await setup();
  expect((await cli("verify")).stdout).toMatch(/3 row\(s\) are not sealed yet/);
  const sealed = await cli("seal");
  expect(sealed.stdout).toMatch(/^Sealed 3 row\(s\) with 2 seal\(s\)\.\nHead: 2:[0-9a-f]{64}\n$/);
  const whole = await cli("verify");
  expect(whole).toMatchObject({ code: 0, stderr: "" });
  expect(whole.stdout).toMatch(/^OK: 3 row\(s\) match/);
  const head = /store it elsewhere\): (\S+)/.exec(whole.stdout)?.[1] ?? "";
  await tamper("update sagabox.saga_audit_log set note = 'x' where id = 2");
  const broken = await cli("verify", "--anchor", head);
  expect(broken.code).toBe(3);
  expect(broken.stdout).toMatch(/^BROKEN: 1 finding/);
  expect(broken.stdout).toContain("row_changed: Row 2 of saga_audit_log was changed (seal 2,");
  const asJson = await cli("verify", "--json");
  expect(JSON.parse(asJson.stdout)).toMatchObject({
    ok: false,
    findings: [{ kind: "row_changed", id: "2" }],
  });
  expect(asJson.code).toBe(3);
});

test.each([
  [["audit"], "needs one of list, verify, seal"],
  [["audit", "verfy"], "Did you mean verify?"],
  [["audit", "seal", "--anchor", "x"], "does not accept --anchor"],
  [["audit", "list", "extra"], "takes no further argument"],
  [["audit", "list", "--since", "yesterday"], "--since must be a time"],
  [["audit", "verify", "--anchor", "x"], "audit.verify: anchor"],
  [["audit", "list", "--outcome", "don"], 'Did you mean "done"?'],
])("%j is a usage error that says what to do", async (args, text) => {
  const told = await cliInProcess(args, { DATABASE_URL: "postgres://localhost:1/none" });
  expect(told.code).toBe(2);
  expect(told.stderr).toContain(text);
});

test("the help has an example", async () => {
  const { stdout, code } = await cliInProcess(["audit", "--help"], {});
  expect(code).toBe(0);
  expect(stdout).toContain("sagabox audit verify --anchor");
});
