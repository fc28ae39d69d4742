import { expect, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { pgDatabase } from "../storage/index.ts";
import { sagaStatements } from "./statements.ts";
import { TransitionWriter } from "./transition-writer.ts";

async function setup(...ids: readonly string[]) {
  const { pool } = await temporaryDatabase({ migrated: true });
  const { save } = sagaStatements('"sagabox"');
  for (const id of ids) {
    await pool.query(
      `insert into sagabox.saga_instance (id, saga_type, definition_version, correlation_id, status, input, state, version,
         trace_id, traceparent, message_correlation_id)
       values ($1, 'order', 1, $1, 'running', '{}', '{}', 1, '', '', $1)`,
      [id],
    );
  }
  const writer = new TransitionWriter(pgDatabase(pool), save);
  const move = (id: string, version = 1, more: object = {}): Promise<boolean> => {
    const lines = [
      { nr: 1, event: "step_executed", stepPath: "one", from: "in_progress", to: "completed" },
      { nr: 2, event: "step_executed", stepPath: "two", from: "pending", to: "in_progress" },
    ];
    const made = {
      id,
      version,
      status: "running",
      state: { of: id },
      retries: 0,
      release: false,
      cause: "test",
    };
    return writer.save({ id, text: JSON.stringify({ ...made, lines, input: { kind: "tick" }, ...more }) });
  };
  const versions = async (): Promise<unknown> =>
    (
      await pool.query<{ id: string; version: number; state: unknown }>(
        "select id, version, state from sagabox.saga_instance order by id",
      )
    ).rows.map(({ id, version, state }) => [id, version, state]);
  const history = async (): Promise<unknown> =>
    (
      await pool.query<{ line: string }>(
        `select saga_id || ' ' || version || ' ' || step || coalesce(' ' || input, '') as line
           from sagabox.saga_audit_log order by saga_id, id`,
      )
    ).rows.map(({ line }) => line);
  return { pool, save, move, versions, history };
}

test("a stale transition is not saved, nor its history; others in the batch are", async () => {
  const { move, versions, history } = await setup("a", "b", "c");
  expect(await Promise.all([move("a"), move("b", 7), move("c"), move("nobody")])).toEqual([
    true,
    false,
    true,
    false,
  ]);
  expect(await versions()).toEqual([
    ["a", 2, { of: "a" }],
    ["b", 1, {}],
    ["c", 2, { of: "c" }],
  ]);
  const lines = (id: string): string[] => [`${id} 2 one {"kind":"tick"}`, `${id} 2 two`];
  expect(await history()).toEqual([...lines("a"), ...lines("c")]);
});

test("one whose row is locked is not waited for", async () => {
  const { pool, move, versions } = await setup("a", "b");
  const other = await pool.connect();
  try {
    await other.query("begin");
    await other.query("select from sagabox.saga_instance where id = 'a' for update");
    expect(await Promise.all([move("a"), move("b")])).toEqual([false, true]);
  } finally {
    await other.query("rollback");
    other.release();
  }
  expect(await versions()).toEqual([
    ["a", 1, {}],
    ["b", 2, { of: "b" }],
  ]);
});

test("one that the database refuses does not keep its neighbours from being saved", async () => {
  const { move, versions, history } = await setup("a", "b");
  const bad = move("a", 1, { status: "unheard of" });
  const good = move("b");
  await expect(bad).rejects.toThrow("saga_instance_status_check");
  expect(await good).toBe(true);
  expect(await versions()).toMatchObject([
    ["a", 1, {}],
    ["b", 2, { of: "b" }],
  ]);
  expect(await history()).toHaveLength(2);
});

test("incidents are opened and closed each for its own instance", async () => {
  const { pool, move } = await setup("a", "b");
  const failed = { status: "failed", steps: ["one", "two"], incident: "no answer" };
  await Promise.all([move("a", 1, failed), move("b", 1, failed)]);
  await Promise.all([move("a", 2, { resolution: "running" }), move("b", 2)]);
  const { rows } = await pool.query(
    "select saga_id, steps, error, resolution from sagabox.saga_incident order by saga_id",
  );
  const opened = { steps: ["one", "two"], error: "no answer" };
  expect(rows).toEqual([
    { saga_id: "a", ...opened, resolution: "running" },
    { saga_id: "b", ...opened, resolution: null },
  ]);
});

test("a plan that is made while there are no instances looks them up by their id", async () => {
  const { pool, save } = await setup();
  const client = await pool.connect();
  try {
    await client.query("set plan_cache_mode = force_generic_plan");
    await client.query(`prepare save as ${save.text}`);
    const { rows } = await client.query<{ "QUERY PLAN": string }>("explain execute save('[]')");
    const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
    expect(plan).toContain("saga_instance_pkey");
    expect(plan).not.toContain("Seq Scan on saga_instance");
  } finally {
    client.release(true);
  }
});
