import { fileURLToPath } from "node:url";
import { expect, test, vi } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { recordEvents, type Seen } from "../../test/support/flows.ts";
import { cliInProcess } from "../../test/support/run-cli.ts";
import type { FlowView } from "../admin/index.ts";
import type { FlowPath } from "../flow/index.ts";

vi.setConfig({ testTimeout: 60_000 });

const app = fileURLToPath(new URL("../../test/support/flow-service.ts", import.meta.url));
const HOUR = 3_600_000;
const placed: Seen = { id: "1", type: "order.placed", source: "orders", at: 0 };
const reserved: Seen = { id: "2", type: "stock.reserved", source: "stock", after: "1", at: 10 };
const declined: Seen = { id: "3", type: "payment.failed", source: "payments", after: "2", at: 20 };
const released: Seen = { id: "4", type: "stock.released", source: "stock", after: "3", at: 30 };

async function setup() {
  const { pool, url } = await temporaryDatabase({ migrated: true });
  const record = (correlationId: string, agoMs: number, ...seen: readonly Seen[]): Promise<void> =>
    recordEvents(pool, correlationId, agoMs, ...seen);
  const countOpen = async (): Promise<number> =>
    (await pool.query("select from sagabox.flow_event where open")).rowCount ?? 0;
  const flow = (...args: string[]) => cliInProcess(["flow", ...args], { DATABASE_URL: url });
  return { record, countOpen, flow };
}

test("flow: with the application a path has its status, its steps and what it waits for", async () => {
  const { record, flow } = await setup();
  await record("o-1", HOUR, placed, reserved);
  const told = await flow("o-1", "--app", app);
  expect(told).toMatchObject({ code: 0, stderr: "" });
  expect(told.stdout).toMatch(/^flow order, correlation id o-1: running$/m);
  expect(told.stdout).toMatch(
    /^2026-01-01T12:00:00\.010000Z +stock\.reserved +stock +o-1 +effect +10 ms +o-1-2$/m,
  );
  expect(told.stdout).toMatch(
    /^waits for payments since 2026-01-01T12:00:00\.010000Z: payment\.captured, or payment\.failed after stock\.reserved\n {2}→ sagabox explain o-1-2$/m,
  );
  const { correlationId, paths, events } = JSON.parse(
    (await flow("o-1", "--app", app, "--json")).stdout,
  ) as FlowView;
  expect(correlationId).toBe("o-1");
  expect(paths).toMatchObject([{ flow: "order", status: "running", waitsFor: [{ by: "payments" }] }]);
  expect(events.map(({ messageId }) => messageId)).toEqual(["o-1-1", "o-1-2"]);
});

test("flow: without the application the recorded events are listed, and the output says what is missing", async () => {
  const { record, flow } = await setup();
  await record("o-1", HOUR, placed, reserved);
  const told = await flow("o-1");
  expect(told).toMatchObject({ code: 0, stderr: "" });
  expect(told.stdout).toMatch(/ order +stock\.reserved +stock +o-1 +o-1-2 +o-1-1$/m);
  expect(told.stdout).toMatch(/add --app <module>/);
  expect(JSON.parse((await flow("o-1", "--json")).stdout)).toMatchObject({ paths: [], events: [{}, {}] });
});

test("flow: effects that are not undone and events that contradict the flow are named", async () => {
  const { record, flow } = await setup();
  const captured: Seen = { id: "3", type: "payment.captured", source: "payments", after: "2", at: 20 };
  const lost: Seen = { id: "4", type: "shipment.failed", source: "shipping", after: "3", at: 30 };
  await record("o-1", HOUR, placed, reserved, captured, lost, {
    ...released,
    id: "5",
    source: "warehouse",
    after: "4",
  });
  const { stdout } = await flow("o-1", "--app", app);
  expect(stdout).toMatch(/^flow order, correlation id o-1: compensating$/m);
  expect(stdout).toMatch(/^not undone: payment\.captured o-1-3$/m);
  expect(stdout).toMatch(
    /^surprise: stock\.released o-1-5\. Published by "warehouse"; the flow says "stock"\.$/m,
  );
});

test("flow: an unknown correlation id is an error with the next command, and one named unfinished needs the option", async () => {
  const { record, flow } = await setup();
  await record("unfinished", HOUR, placed);
  expect(await flow("o-9")).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/"o-9".*sagabox explain.*\[FLOW_PATH_NOT_FOUND\]/),
  });
  expect(await flow("--correlation-id", "unfinished")).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("unfinished-1"),
  });
});

test("flow unfinished: idle paths, longest idle first, and nothing is marked as finished", async () => {
  const { record, countOpen, flow } = await setup();
  await record("stuck", HOUR, placed, reserved);
  await record("older", 2 * HOUR, placed);
  await record("lively", 1_000, placed);
  await record("done", HOUR, placed, reserved, declined, released);
  const open = await countOpen();
  const told = await flow("unfinished", "--app", app);
  expect(told).toMatchObject({ code: 0, stderr: "" });
  expect(told.stdout).toMatch(
    /^older +order +running +\S+ +stock +\S+Z\nstuck +order +running +\S+ +payments +\S+Z$/m,
  );
  const ids = async (...args: string[]): Promise<readonly string[]> => {
    const { stdout } = await flow("unfinished", "--app", app, "--json", ...args);
    return (JSON.parse(stdout) as { unfinished: FlowPath[] }).unfinished.map((path) => path.correlationId);
  };
  expect(await ids()).toEqual(["older", "stuck"]);
  expect(await ids("--limit", "1")).toEqual(["older"]);
  expect(await ids("--idle-for", "90m", "--flow", "order")).toEqual(["older"]);
  expect((await flow("unfinished", "--app", app, "--check")).code).toBe(3);
  expect((await flow("unfinished", "--app", app, "--check", "--idle-for", "1d")).code).toBe(0);
  expect(await countOpen()).toBe(open);
});

test.each([
  [[], /needs a correlation id, or the action unfinished/],
  [["a", "b"], /takes one correlation id/],
  [["a", "--idle-for", "1h"], /Only "sagabox flow unfinished" accepts --idle-for/],
  [["unfinished"], /needs --app <module>/],
  [["unfinished", "--app", app, "--flow", "ordr"], /watches no flow "ordr"\. Did you mean order\?/],
  [["unfinished", "--app", app, "--correlation-id", "a"], /does not accept --correlation-id/],
])("flow %j is a usage error", async (args, problem) => {
  expect(await cliInProcess(["flow", ...args], {})).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(problem),
  });
});
