import { expect, test } from "vitest";
import { expectTakeOverAndReturn, silentDatabase } from "../support/silent-database.ts";

const LONG = 120_000;

test(
  "a worker whose connections go silent is replaced by another, says so, and comes back by itself",
  () => expectTakeOverAndReturn(),
  LONG,
);

test(
  "connections that go silent one by one while new ones work are replaced, and the lease is kept or taken again",
  async () => {
    const { wire, worker, publish, allHandled } = await silentDatabase();
    const only = await worker("only", wire.url);
    await publish();
    await allHandled();
    wire.deafen(); // all that are open now; new ones get through
    await publish();
    await allHandled();
    await expect.poll(() => only.bus.health(), { timeout: 60_000 }).toMatchObject({ ok: true });
  },
  LONG,
);

test(
  "a worker can be stopped while none of its connections answers",
  async () => {
    const { wire, worker, publish, allHandled } = await silentDatabase();
    const cutOff = await worker("cut-off", wire.url, { shutdownTimeout: "3s" });
    await publish();
    await allHandled();
    wire.swallow();
    await publish();
    await cutOff.bus.stop();
    await expect.poll(() => wire.clients, { timeout: 20_000 }).toBe(0);
  },
  LONG,
);

test(
  "a read-only phase of the database is survived: connections made meanwhile are not used for ever",
  async () => {
    const { name, pool, url, worker, publish, allHandled, asAdmin } = await silentDatabase();
    const one = await worker("one", url);
    await publish();
    await allHandled();
    await publish();

    await asAdmin(`alter database ${name} set default_transaction_read_only = on`);
    // As a failover does: all connections end, and those made from now on are read-only.
    await pool.query(
      "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
    );
    const failures = (): string[] => one.observer.of("storage.failed").map(({ error }) => error);
    await expect.poll(failures, { timeout: 60_000 }).toContainEqual(expect.stringMatching(/read-only/));
    await expect
      .poll(() => one.bus.health(), { timeout: 60_000 })
      .toMatchObject({ ok: false, checks: { database: false } });

    await asAdmin(`alter database ${name} reset default_transaction_read_only`);
    await expect.poll(() => one.bus.health(), { timeout: 60_000 }).toMatchObject({ ok: true });
    await expect
      .poll(
        () =>
          publish().then(
            () => true,
            () => false,
          ),
        { timeout: 60_000 },
      )
      .toBe(true);
    await expect.poll(() => one.bus.health(), { timeout: 60_000 }).toMatchObject({ ok: true });
    expect(one.observer.of("dead_letter.buried").length).toBe(0);
  },
  LONG,
);
