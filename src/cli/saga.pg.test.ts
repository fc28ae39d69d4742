import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { saga } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { Approved, sagaOptions, sagaHarness } from "../../test/support/saga-fixture.ts";
import { cliInProcess, runCli } from "../../test/support/run-cli.ts";
import { orderSaga } from "../../test/support/saga-service.ts";

vi.setConfig({ testTimeout: 60_000 });

const app = fileURLToPath(new URL("../../test/support/saga-service.ts", import.meta.url));
const why = ["--actor", "ann", "--reason", "ticket 7"];

async function setup() {
  const house = await sagaHarness();
  const { bus, url, start, at } = house;
  const order = orderSaga();
  bus.register(order);
  await bus.run();
  const { sagaId: waiting } = await start(order, { id: "o1" });
  const { sagaId: broken } = await start(order, { id: "broken" });
  await at(waiting, "running", "approval");
  await at(broken, "failed");
  const env = { DATABASE_URL: url };
  const cli = (...args: string[]) => cliInProcess(["saga", ...args], env);
  return { ...house, waiting, broken, cli, env };
}

test("F10: list shows instances in columns or as JSON, filtered, and obeys no escape in them", async () => {
  const { cli, waiting, broken } = await setup();
  const all = await cli("list");
  expect(all.code).toBe(0);
  const [head, , ...rows] = all.stdout.trimEnd().split("\n");
  expect(head).toMatch(/^id +type +version +key +status +waits for +changed at +last error$/);
  expect(rows.map((row) => row.split(/ {2,}/)[0])).toEqual([broken, waiting]);
  expect(all.stdout).not.toContain("\u001b");
  const found = await cli("list", "--status", "running", "--key", "o1", "--type", "order", "--json");
  expect(JSON.parse(found.stdout)).toMatchObject({ sagas: [{ id: waiting, waitsFor: "wait: approval" }] });
  expect((await cli("list", "--key", "nobody")).stdout).toBe("No saga was found.\n");
  const wrong = await cli("list", "--status", "runing");
  expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining('Did you mean "running"?') });
});

test("F10: show tells steps, incident and the ways out; history tells who and why", async () => {
  const { cli, broken, at } = await setup();
  const shown = await cli("show", broken);
  expect(shown.code).toBe(0);
  expect(shown.stdout).toMatch(/^status +failed, past its pivot$/m);
  expect(shown.stdout).toMatch(/^ship +failed +\S+ +\S+ ms +1 +no carrier for broken/m);
  expect(shown.stdout).toMatch(/^An operator must decide since \S+: step ship failed for good: no carrier/m);
  expect(shown.stdout).toContain(`sagabox saga retry ${broken} --actor "$(whoami)" --reason`);
  expect(shown.stdout).toContain(`sagabox saga skip ${broken} --step ship --actor "$(whoami)" --reason`);
  expect(shown.stdout).not.toContain("\u001b");
  const json = JSON.parse((await cli("show", broken, "--json")).stdout) as object;
  expect(json).toMatchObject({ id: broken, pivoted: true, incident: { steps: ["ship"] } });
  expect(
    await cli("settle", broken, "--step", "ship", "--result", '"by hand"', "--yes", ...why),
  ).toMatchObject({
    code: 0,
    stdout: `Requested "settle". A worker carries it out next; see: sagabox saga show ${broken}\n`,
  });
  await at(broken, "completed");
  expect(await cli("cancel", broken, "--yes", "--actor", "bo", "--reason", "too late")).toMatchObject({
    code: 1,
  });
  const history = await cli("history", broken);
  expect(history.stdout).toMatch(/^at +nr +event +step +change +note +cause +by$/m);
  expect(history.stdout).toMatch(/ settle by ann: ticket 7 +operator:ann +ann: ticket 7$/m);
  expect(history.stdout).toMatch(/ ignored .* past its pivot.* operator:bo +bo: too late$/m);
  expect(history.stdout).not.toContain("\u001b");
  expect(await cli("show", "nobody")).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("SAGA_NOT_FOUND"),
  });
});

test("F10: stuck says why and what to do", async () => {
  const { cli, broken } = await setup();
  const { code, stdout } = await cli("stuck");
  expect(code).toBe(0);
  expect(stdout).toMatch(
    new RegExp(`^${broken} {2}order broken.* failed {2}\\(incident\\)\\n {2}Step ship failed`),
  );
  expect(stdout).toContain("retry");
  expect((await cli("stuck", "--check")).code).toBe(3);
  expect(await cli("stuck", "--check", "--type", "parcel")).toMatchObject({
    code: 0,
    stdout: "No saga is stuck.\n",
  });
  const json = JSON.parse((await cli("stuck", "--older-than", "1h", "--json")).stdout) as object;
  expect(json).toMatchObject({ stuck: [{ id: broken, reason: "incident" }] });
});

test("F10: actions need a reason, are done by a worker, and are refused with code 1 when they make no sense", async () => {
  const { cli, waiting, broken, at, bus, env } = await setup();
  expect(await cli("cancel", waiting, "--actor", "ann")).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("Add --reason"),
  });
  expect(await cli("cancel", waiting, "--reason", "x")).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("Add --actor"),
  });
  expect(await cli("skip", broken, ...why)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("needs --step"),
  });
  expect(await cli("settle", broken, "--step", "ship", "--result", "{", ...why)).toMatchObject({ code: 2 });
  expect(await cli("cancel", broken, "--yes", ...why)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("past its pivot"),
  });
  const user = { ...env, USER: "bo" };
  const cancelled = await cliInProcess(
    ["saga", "cancel", waiting, "--reason", "ticket 8", "--yes", "--json"],
    user,
  );
  expect(JSON.parse(cancelled.stdout)).toEqual({ action: "cancel", sagaId: waiting, accepted: true });
  await at(waiting, "compensated");
  expect((await bus.sagas.history(waiting)).some(({ actor }) => actor === "bo")).toBe(true);
  expect(await cli("compensate", waiting, "--yes", ...why)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("Nothing to do"),
  });
  await cli("skip", broken, "--step", "ship", "--yes", ...why);
  await at(broken, "completed");
});

test("an irreversible action needs --yes in a script and asks for confirmation at a terminal", async () => {
  const { waiting, at, bus, env } = await setup();
  const decide = (kind: string, answer?: string) => {
    const terminal = { out: true, ask: () => Promise.resolve(answer) };
    const step = kind === "skip" || kind === "settle" ? ["--step", "approval"] : [];
    return cliInProcess(
      ["saga", kind, waiting, ...step, ...why],
      env,
      answer === undefined ? {} : { terminal },
    );
  };
  for (const kind of ["skip", "settle", "compensate", "cancel"]) {
    expect(await decide(kind), kind).toMatchObject({ code: 2, stderr: expect.stringContaining("add --yes") });
  }
  expect(await decide("cancel", "no")).toMatchObject({ code: 4, stdout: "", stderr: "Nothing was done.\n" });
  expect((await bus.sagas.show(waiting)).status).toBe("running");
  expect((await decide("cancel", "yes")).stdout).toContain('Requested "cancel"');
  await at(waiting, "compensated");
});

test("F8: check ends with 0 on the same definitions and with 3 on changed ones, naming each instance", async () => {
  const { cli, env, waiting, broken, pool, another } = await setup();
  expect(await runCli(["saga", "check", "--app", app], { env })).toMatchObject({
    code: 0,
    stdout: "2 checked: 2 same, 0 diverge, 0 stuck.\n",
    stderr: "",
  });
  const changed = { ...env, CHANGED: "yes" };
  const report = await runCli(["saga", "check", "--app", app], { env: changed });
  expect(report.code).toBe(3);
  expect(report.stdout).toMatch(new RegExp(`^${waiting} .* stuck +– +book`, "m"));
  expect(report.stdout).toMatch(new RegExp(`^${broken} .* stuck +– +book`, "m"));
  expect(report.stdout).toContain("2 checked: 0 same, 0 diverge, 2 stuck.");
  expect(report.stdout).toContain('Saga "order" version 1 differs from the stored definition:\n');
  expect(report.stdout).toContain('  "book" was removed or renamed (tx)\n');
  expect(report.stdout).toContain(
    'A worker refuses to start with saga "order" version 1: 2 unfinished instances have begun\n' +
      '  "approval", which was removed or renamed (wait) (instances: 1)\n' +
      '  "book", which was removed or renamed (tx) (instances: 2)\n',
  );
  expect(report.stdout).not.toContain("\u001b");
  vi.stubEnv("CHANGED", "yes").stubEnv("DATABASE_URL", env.DATABASE_URL);
  onTestFinished(() => void vi.unstubAllEnvs());
  const json = await cli("check", "--app", app, "--json");
  expect(JSON.parse(json.stdout)).toMatchObject({ checked: 2, diverges: 0, stuck: 2 });
  vi.stubEnv("CHANGED", "no");
  const parcel = saga("parcel", sagaOptions).waitFor("approval", Approved, { timeout: "1d" });
  const elsewhere = another("elsewhere");
  elsewhere.register(parcel);
  await elsewhere.transaction((tx) => elsewhere.start(tx, parcel, { id: "p1" }));
  await pool.query(
    "update sagabox.saga_instance set definition_version = 7, status = 'completed', completed_at = now() where id = $1",
    [broken],
  );
  expect(await cli("check", "--app", app)).toMatchObject({
    code: 0,
    stdout: [
      "1 checked: 1 same, 0 diverge, 0 stuck.",
      "1 skipped: ended, with a version that is not registered.",
      `Not checked: 1 open instances of saga "parcel", which "${app}" does not register.\n`,
    ].join("\n"),
  });
  expect(await cli("check")).toMatchObject({ code: 2, stderr: expect.stringContaining("needs --app") });
});

test("F11: diagram draws a definition by its name, and an instance with or without the application", async () => {
  const { cli, broken, env } = await setup();
  vi.stubEnv("DATABASE_URL", env.DATABASE_URL);
  onTestFinished(() => void vi.unstubAllEnvs());
  const definition = await cli("diagram", "order", "--app", app);
  expect(definition.stdout).toMatch(/^flowchart TD\n {2}n1\(\["start<br\/>order 1"\]\)\n/);
  const instance = await cli("diagram", broken, "--app", app);
  expect(instance.stdout).toMatch(/ship<br\/>.*failed/);
  const timeline = await cli("diagram", broken);
  expect(timeline.stdout).toMatch(/^gantt\n/);
  expect(timeline.stdout).not.toContain("\u001b");
});

test("what is not there is said with what was meant, and an option nobody reads is refused", async () => {
  const env = { DATABASE_URL: "postgres://localhost:1/x" };
  const cli = (...args: string[]) => cliInProcess(["saga", ...args], env);
  const expected = [
    [cli(), "needs one of list, show"],
    [cli("lst"), "Did you mean list?"],
    [cli("show"), "needs the id"],
    [cli("show", "a", "b"), "takes no further argument, but got b"],
    [cli("list", "--reason", "x"), "does not accept --reason"],
    [cli("list", "--limit", "many"), "--limit must be a whole number"],
    [cli("diagram", "order"), "To draw a saga by name, add --app <module>"],
    [
      cli("diagram", "ordr", "--app", app),
      "registers no saga with this name. It registers: order (version 1).",
    ],
    [
      cli("diagram", "order", "--app", app, "--version", "7"),
      'does not register version 7 of "order", only 1.',
    ],
    [cli("diagram", "01a1e27c-e0ef-75b9-b736-285e172e8fb3", "--version", "7"), "is drawn in its own version"],
  ] as const;
  for (const [run, text] of expected) {
    const { code, stderr } = await run;
    expect(stderr).toContain(text);
    expect(stderr).toMatch(/\nRun `sagabox help saga` for help\.\n$/);
    expect(code).toBe(2);
  }
});

test("F10: signal brings the event an instance waits for, held to its schema, once", async () => {
  const { cli, waiting, at } = await setup();
  const folder = mkdtempSync(join(tmpdir(), "signal-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = (name: string, text: string) => {
    writeFileSync(join(folder, name), text);
    return ["--data-file", join(folder, name)];
  };
  const good = file("good", '{"id":"o1"}');
  const bring = (event: string, data: string[]) =>
    cli("signal", waiting, "--event", event, ...data, "--app", app, "--signal-id", "s-1", ...why);
  expect(await bring("approvals.givn", good)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("Did you mean approvals.given?"),
  });
  expect(await bring("approvals.given", file("list", "{"))).toMatchObject({ code: 2 });
  expect(await bring("approvals.given", file("wrong", '{"id":1}'))).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("PAYLOAD_INVALID"),
  });
  expect(await bring("approvals.given", good)).toMatchObject({ code: 0, stderr: "" });
  await at(waiting, "failed"); // its last step always fails
  expect((await bring("approvals.given", good)).stdout).toContain("Nothing to do");
});
