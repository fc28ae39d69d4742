import { expect, test } from "vitest";
import { event, saga } from "sagabox";
import { z } from "zod";
import { sagaHarness } from "../../test/support/saga-fixture.ts";
import { pgDatabase } from "../storage/index.ts";
import { forgetSagas } from "./upkeep.ts";

const Approved = event("approvals.given", { schema: z.object({ id: z.string() }), key: (d) => d.id });
const options = { version: 1, input: z.object({ id: z.string() }), key: (i: { id: string }) => i.id };

test("F3: ended instances are forgotten after their retention, while the audit log keeps their lines; running ones never", async () => {
  const { bus, start, at, pool } = await sagaHarness();
  const quick = saga("quick", options)
    .run("only", () => 1)
    .noUndo("nothing to undo");
  const slow = saga("slow", options).waitFor("approval", Approved, { timeout: "1d" });
  bus.register(quick, slow);
  await bus.run();
  const ended: string[] = [];
  for (const id of ["a", "b", "c"]) ended.push((await start(quick, { id })).sagaId);
  const { sagaId: running } = await start(slow, { id: "a" });
  for (const id of ended) await at(id, "completed");
  const forget = () => forgetSagas(pgDatabase(pool), "sagabox", { olderThanMs: 3_600_000, batchSize: 2 });
  expect(await forget()).toEqual({ instances: 0, inputs: 0 });
  await pool.query(
    `update sagabox.saga_instance set created_at = created_at - interval '2 hours',
            completed_at = completed_at - interval '2 hours', updated_at = updated_at - interval '2 hours'`,
  );
  await pool.query(
    `insert into sagabox.saga_input (id, saga_type, correlation_id, cause, input, expires_at)
     values ('early', 'quick', 'nobody', 'message:1', '{}', now() - interval '1 second')`,
  );
  expect(await forget()).toEqual({ instances: 3, inputs: 1 });
  expect((await bus.sagas.list()).map(({ id }) => id)).toEqual([running]);
  const { rows } = await pool.query<{ saga_id: string }>(
    "select distinct saga_id from sagabox.saga_audit_log order by 1",
  );
  expect(rows.map((row) => row.saga_id)).toEqual([...ended, running].toSorted());
  expect((await bus.sagas.history(ended[0] ?? "")).at(-1)).toMatchObject({ to: "completed" });
});
