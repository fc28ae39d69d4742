import { expect, test } from "vitest";
import { saga } from "sagabox";
import { Order, sagaFixture } from "../support/saga-fixture.ts";
import { until } from "../support/relays.ts";

const begin = (name = "order") => saga(name, { version: 1, input: Order, key: (i) => i.orderId });

test("a tx step that never ends is rolled back when its time is over, and lets go of the saga", async () => {
  const { bus, ends, pool } = await sagaFixture();
  await pool.query("create table booked (id text)");
  const order = begin()
    .tx(
      "book",
      async (c) => {
        await c.tx.query("insert into booked values ('a')", []);
        await new Promise(() => undefined);
      },
      { timeout: "300ms", retry: { maxAttempts: 1 } },
    )
    .noUndo("a test");
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "compensated");
  expect((await pool.query("select * from booked")).rows).toEqual([]);
});

test("an instance whose row is locked costs no other one its claim", async () => {
  const { bus, ends, pool } = await sagaFixture({ lease: 1_000, sagas: { pollInterval: "30s" } });
  let calls = 0;
  let hangUp: () => void = () => undefined;
  const over = new Promise<void>((resolve) => (hangUp = resolve));
  const calling = begin("calling")
    .run("call", async () => {
      calls += 1;
      await over;
    })
    .noUndo("a test");
  bus.register(calling);
  await bus.run();
  const start = (orderId: string) => bus.transaction((tx) => bus.start(tx, calling, { orderId }));
  const { sagaId: locked } = await start("o1");
  const { sagaId: other } = await start("o2");
  await until(() => calls === 2);
  const client = await pool.connect();
  await client.query("begin");
  await client.query("select 1 from sagabox.saga_instance where id = $1 for update", [locked]);
  const claim = "select claimed_until > now() as held from sagabox.saga_instance where id = $1";
  await client.query("select pg_sleep(2)");
  const { rows } = await pool.query(claim, [other]);
  await client.query("commit");
  client.release();
  hangUp();
  expect(rows).toEqual([{ held: true }]);
  await ends(locked, "completed");
  await ends(other, "completed");
  expect(calls).toBe(2);
});

test("what follows a tx step begins when that has ended: its time is not taken from the next one's", async () => {
  const { bus, ends } = await sagaFixture();
  const order = begin()
    .tx("book", (c) => c.tx.query("select pg_sleep(1.2)", []).then(() => undefined))
    .noUndo("a test")
    .delay("rest", "1s");
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "completed");
  const [book, rest] = (await bus.sagas.show(sagaId)).steps;
  expect(book?.durationMs).toBeGreaterThanOrEqual(1_200);
  expect(rest?.startedAt).toBe(book?.endedAt);
  const history = await bus.sagas.history(sagaId);
  const at = (step: string): number =>
    Date.parse(history.find((line) => line.step === step && line.to === "completed")?.at ?? "");
  expect(at("rest") - at("book")).toBeGreaterThanOrEqual(500);
});
