import { saga } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { until } from "../../support/relays.ts";
import { Charge, Order, Refund, sagaFixture } from "../../support/saga-fixture.ts";

// Scenarios of the design documents, under their names: what they say about the state of a saga.

// In the documents the second worker gets an error for the conflict. Here it decides again on what the
// first one wrote, so neither answer is lost.
test("H4, test_optimistic_concurrency_conflict: two workers decide on one version; the slower one decides again", async () => {
  const { bus, another, pool, ends, lines } = await sagaFixture();
  const printed = signal();
  const charged = signal();
  const begun: string[] = [];
  const order = saga("order", { version: 1, input: Order, key: (i) => i.orderId }).all("prepare", (g) =>
    g
      .send("charge", Charge, (c) => c.input, { undo: [Refund, (c) => c.input] })
      .run(
        "print",
        async () => {
          begun.push("print");
          await printed.given;
          return "label";
        },
        { undo: { none: "paper only" } },
      ),
  );
  for (const worker of [bus, another()]) {
    worker.register(order);
    worker.on(Charge, { consumer: "payments" }, async () => {
      begun.push("charge");
      await charged.given;
      return { paymentId: "p1" };
    });
    await worker.run();
  }
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await until(() => begun.length === 2);
  const readVersion = async (): Promise<number> =>
    (await pool.query<{ version: number }>("select version from sagabox.saga_instance")).rows[0]?.version ??
    0;
  const version = await readVersion();

  // The worker that got the reply has written the next version and not committed it when the printing worker decides on the one before.
  const gate = await pool.connect();
  onTestFinished(() => gate.release(true));
  await gate.query(
    `create sequence decided;
     create function note_decision() returns trigger language plpgsql as $$
       begin perform nextval('public.decided'); return null; end $$;
     create function wait_here() returns trigger language plpgsql as $$
       begin perform pg_advisory_xact_lock_shared(42); return null; end $$;
     create trigger note_decision before update of version on sagabox.saga_instance for each statement
       execute function note_decision();
     create trigger wait_here after update of version on sagabox.saga_instance for each row execute function wait_here();
     select pg_advisory_lock(42)`,
  );
  const decisions = async (): Promise<number> =>
    Number(
      (await pool.query<{ n: string }>("select coalesce(pg_sequence_last_value('decided'), 0) as n")).rows[0]
        ?.n,
    );
  charged.give();
  const waiting = "select 1 from pg_locks where locktype = 'advisory' and objid = 42 and not granted";
  await until(async () => (await pool.query(waiting)).rows.length === 1);
  expect(await decisions()).toBe(1);
  printed.give();
  await until(async () => (await decisions()) >= 2);
  expect(await readVersion()).toBe(version);
  await gate.query("select pg_advisory_unlock(42)");

  await ends(sagaId, "completed");
  expect(await readVersion()).toBe(version + 2);
  expect(await decisions()).toBeGreaterThan(2);
  // Each was begun once and is done once.
  const executed = (await lines(sagaId)).filter(({ event_type }) => event_type === "step_executed");
  expect(executed.map(({ step }) => String(step)).toSorted()).toEqual([
    "prepare.charge",
    "prepare.charge",
    "prepare.print",
    "prepare.print",
  ]);
  expect(begun.toSorted()).toEqual(["charge", "print"]);
  expect((await pool.query("select 1 from sagabox.dead_letter")).rows).toEqual([]);
});

function signal(): { readonly given: Promise<void>; readonly give: () => void } {
  let give = (): void => undefined;
  const given = new Promise<void>((resolve) => (give = resolve));
  return { given, give: () => give() };
}
