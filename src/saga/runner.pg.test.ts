import { expect, onTestFinished, test } from "vitest";
import { saga } from "sagabox";
import { z } from "zod";
import { Approved } from "../../test/support/approved-order.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { until } from "../../test/support/relays.ts";
import { ScriptedDatabase } from "../../test/support/scripted-database.ts";
import { pgDatabase } from "../storage/index.ts";
import { silentObserver, silentSpans } from "../telemetry/index.ts";
import type { OpenTransaction } from "./instance-handle.ts";
import { sagaSettings } from "./options.ts";
import { Sagas } from "./sagas.ts";

async function setup() {
  const { pool } = await temporaryDatabase({ migrated: true });
  const database = new ScriptedDatabase(pgDatabase(pool));
  const nothing = (): never => {
    throw new Error("these sagas send nothing");
  };
  const begin: OpenTransaction = async (work) => {
    const tx = await database.begin();
    try {
      const result = await work({
        run: (statement, params) => tx.run(statement, params),
        query: (text, params) => tx.query(text, params),
        destroy: () => tx.destroy(),
        send: nothing,
        whenCommitted: () => undefined,
        knowsCommit: true,
      });
      await tx.commit();
      return result;
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  };
  let ids = 0;
  const sagas = new Sagas({
    service: "shop",
    database,
    schema: "sagabox",
    worker: "only",
    leaseMs: 60_000,
    stopDeadlineMs: 5_000,
    settings: sagaSettings({ pollInterval: 20 }),
    compose: nothing,
    newId: () => `id-${(ids += 1)}`,
    observer: silentObserver,
    spans: silentSpans,
    begin,
    transactionOf: nothing,
  });
  onTestFinished(async () => {
    database.letGo();
    await sagas.runner.stop();
  });
  const row = async (): Promise<{ status: string; claimed_by: string | null } | undefined> =>
    (await pool.query("select status, claimed_by from sagabox.saga_instance")).rows[0] as never;
  return { sagas, database, begin, row, pool };
}

test("an instance that is claimed again before its giving back is answered does not wait for the lease to end", async () => {
  const { sagas, database, begin, row, pool } = await setup();
  const order = saga("order", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id }).waitFor(
    "approval",
    Approved,
    { timeout: "1d" },
  );
  sagas.register(order);
  const { sagaId } = await begin((tx) => sagas.start(tx, order, { id: "a" }));
  const by = { actor: "ann", reason: "test" };
  const post = (kind: "retry" | "cancel"): Promise<boolean> =>
    sagas.engine.post(pgDatabase(pool), sagaId, kind, "operator:ann", { kind, by });
  await post("retry"); // of no use, so that the instance is only taken and given back
  const givenBack = database.pauseAfter("sagabox.saga.release");
  await sagas.runner.start();
  await givenBack.reached;
  expect(await row()).toMatchObject({ status: "running", claimed_by: null });
  await post("cancel");
  sagas.hint();
  await until(async () => (await row())?.claimed_by === "only");
  givenBack.open();
  await until(async () => (await row())?.status === "compensated", 10_000);
});
