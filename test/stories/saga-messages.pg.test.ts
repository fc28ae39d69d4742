// The code in docs/guides/sagas-and-messages.md is cut from examples/guides/saga-messages.ts; here it runs.
import { randomUUID } from "node:crypto";
import { event, saga, sagaDiagram } from "sagabox";
import { expect, test } from "vitest";
import { z } from "zod";
import * as guide from "../../examples/guides/saga-messages.ts";
import { ReserveStock } from "../../examples/guides/saga-fixture.ts";
import { stockService } from "../../examples/guides/sagas.ts";
import { until } from "../support/relays.ts";
import { sagaFixture } from "../support/saga-fixture.ts";

const Placed = event("placed", { schema: z.object({ id: z.string() }), key: ({ id }) => id });
const options = {
  version: 1,
  input: z.object({ id: z.string().min(1) }),
  key: ({ id }: { id: string }) => id,
};

async function setup() {
  const fixture = await sagaFixture();
  const { pool, bus } = fixture;
  await pool.query(`
    create table guide_order (id text not null);
    create table guide_reservation (id text not null, sku text not null);
    create table note (text text)`);
  const texts = async (sql: string) => (await pool.query<{ text: string }>(sql)).rows.map(({ text }) => text);
  return {
    ...fixture,
    publish: (id: string, messageId: string) =>
      bus.transaction((tx) => tx.publish(Placed, { id }, { id: messageId })),
    instances: () =>
      texts("select saga_type || ' ' || correlation_id as text from sagabox.saga_instance order by 1"),
    published: () => texts("select type || ' ' || data as text from sagabox.message order by seq"),
    notes: () => texts("select text from note order by text"),
    results: () => texts("select result as text from sagabox.consumer_inbox order by event_id"),
    letters: () => texts("select error_type as text from sagabox.dead_letter"),
  };
}

test.each([
  ["in a handler", guide.startInHandler],
  ["on an event", guide.startOnEvent],
])("an event starts a saga %s", async (_, register) => {
  const { bus, pool, ends } = await setup();
  register(bus);
  stockService(bus);
  await bus.run();
  const orderId = randomUUID();
  await bus.transaction((tx) => tx.publish(guide.OrderPlaced, { orderId, sku: "tea", paid: true }));
  const find = async () =>
    (
      await pool.query<{ id: string; message_correlation_id: string }>(
        "select id, message_correlation_id from sagabox.saga_instance",
      )
    ).rows[0];
  await until(async () => (await find()) !== undefined);
  await ends((await find())?.id ?? "", "completed");
  const { rows } = await pool.query("select correlation_id from sagabox.message where type = $1", [
    guide.OrderPlaced.name,
  ]);
  expect(rows).toEqual([{ correlation_id: (await find())?.message_correlation_id }]);
});

const noted = saga("noted", options)
  .tx("note", async ({ input, tx }) => void (await tx.query("insert into note values ($1)", [input.id])))
  .noUndo("a test");

test("a caller starts a saga and waits for its result", async () => {
  const { bus } = await setup();
  bus.register(guide.fulfilOrder);
  stockService(bus);
  await bus.run();
  expect(await guide.placeOrder(bus, "o1", "tea")).toBe("reserved as r-o1");
  expect(await guide.placeOrder(bus, "o2", "unicorn")).toBe("not possible: unicorns are not in stock");
});

test("a caller publishes the event that starts a saga, and waits for the saga by its key", async () => {
  const { bus } = await setup();
  guide.startOnEvent(bus);
  stockService(bus);
  await bus.run();
  expect(await guide.requestOrder(bus, "o1", "tea")).toBe("completed");
  expect(await guide.requestOrder(bus, "o2", "unicorn")).toBe("compensated");
});

test("a handler that fails starts no saga; its next attempt starts one", async () => {
  const { bus, publish, instances, notes } = await setup();
  bus.register(noted);
  bus.on(Placed, { consumer: "starts", retry: { firstDelay: 1 } }, async ({ data }, { tx, attempt }) => {
    const first = await bus.start(tx, noted, data);
    const second = await tx.start(noted, data);
    expect([first.started, second]).toEqual([true, { sagaId: first.sagaId, started: false }]);
    if (attempt < 3) throw new Error("after the start");
  });
  await bus.run();
  await publish("a", "m1");
  await until(async () => (await notes()).length > 0);
  expect([await instances(), await notes()]).toEqual([["noted a"], ["a"]]);
});

test("startOn starts one saga per event, however often and by however many workers it is handled", async () => {
  const { bus, another, publish, instances, notes, results } = await setup();
  const other = another({ worker: "other" });
  for (const one of [bus, other]) one.startOn(Placed, noted, ({ data }) => data);
  await Promise.all([bus.run(), other.run()]);
  const ids = ["a", "b", "c", "d"];
  for (const id of [...ids, ...ids]) await publish(id, `event-${id}`);
  await bus.transaction((tx) => tx.publish(Placed, { id: "a" }, { id: "zz" })); // another event, with the key of "a"
  await until(async () => (await results()).length === 5 && (await notes()).length === 4);
  expect([await instances(), await notes()]).toEqual([ids.map((id) => `noted ${id}`), ids]);
  const [first, last] = [(await results()).at(0), (await results()).at(-1)].map(
    (text) => JSON.parse(text ?? "") as { sagaId: string; started: boolean },
  );
  expect(last).toEqual({ sagaId: first?.sagaId, started: false });
});

test("startOn starts nothing for undefined, and dead-letters an event without a valid input", async () => {
  const { bus, publish, instances, letters, results } = await setup();
  bus.startOn(Placed, noted, async ({ data: { id } }) => (id === "none" ? undefined : { id: id.slice(1) }));
  await bus.run();
  await publish("none", "m1");
  await publish("x", "m2");
  await until(async () => (await letters()).length === 1 && (await results()).length === 1);
  expect([await letters(), await results(), await instances()]).toEqual([["PAYLOAD_INVALID"], [null], []]);
});

test("startOn takes a saga and a function, and the options of a handler", async () => {
  const { bus } = await setup();
  const wrong = bus.startOn.bind(bus) as (...args: unknown[]) => void;
  expect(() => wrong(Placed, noted)).toThrow("third argument of bus.startOn must be a function");
  expect(() => wrong(Placed, {}, () => undefined)).toThrow(expect.objectContaining({ code: "SAGA_INVALID" }));
  bus.startOn(Placed, noted, ({ data }) => data, { consumer: "mine", concurrency: 2 });
  expect(bus.topology().groups.map(({ group }) => group)).toContain("mine");
  expect(() => bus.startOn(Placed, noted, ({ data }) => data, { consumer: "mine" })).toThrow(
    expect.objectContaining({ code: "HANDLER_DUPLICATE" }),
  );
});

test("every transaction has query, publish and start, and nothing that ends it", async () => {
  const { bus, ends, publish, results } = await setup();
  const shapes: Record<string, readonly unknown[]> = {};
  const look = (where: string, tx: object): void => {
    const reachable = [tx, Object.getPrototypeOf(tx) as object, (tx as { constructor: object }).constructor];
    const internal = ["commit", "rollback", "destroy", "run", "session", "client", "findOwned", "findScope"];
    shapes[where] = [Object.keys(tx).sort(), internal.filter((name) => reachable.some((one) => name in one))];
  };
  const looking = saga("looking", options)
    .tx("look", ({ tx }) => look("step", tx))
    .undo(({ tx }) => look("undo", tx))
    .run("fail", () => Promise.reject(new Error("turn back")), { retry: { maxAttempts: 1 } })
    .noUndo("a test");
  bus.register(looking);
  bus.on(Placed, { consumer: "each" }, (_, { tx }) => look("handler", tx));
  bus.onBatch(Placed, { consumer: "batch" }, (_, { tx }) => look("batch", tx));
  await bus.run();
  await publish("a", "m1");
  const foreign = { id: "f1", consumer: "foreign", topic: "t", type: "t", data: null };
  await bus.inbox.process(foreign, (_, { tx }) => look("inbox", tx));
  const { sagaId } = await bus.transaction((tx) => {
    look("bus.transaction", tx);
    return tx.start(looking, { id: "a" });
  });
  await ends(sagaId, "compensated");
  await until(async () => (await results()).length === 3);
  const shape = [["publish", "query", "start"], []];
  expect(shapes).toEqual(
    Object.fromEntries(
      ["bus.transaction", "handler", "batch", "inbox", "step", "undo"].map((where) => [where, shape]),
    ),
  );
});

test("what a tx step publishes and starts is written with its row, in the saga's correlation", async () => {
  const { bus, pool, ends, published, instances, notes } = await setup();
  const Noted = event("noted", { schema: z.object({ id: z.string(), attempt: z.number() }) });
  let attempts = 0;
  const first = saga("first", options)
    .tx(
      "announce",
      async ({ input: { id }, tx, publish }) => {
        attempts += 1;
        await publish(Noted, { id, attempt: attempts });
        await tx.start(noted, { id: `child of ${id}` });
        if (attempts < 3) throw new Error("after the publish");
      },
      { retry: { firstDelay: 1 } },
    )
    .undo(async ({ input: { id }, publish }) => void (await publish(Noted, { id, attempt: -1 })))
    .run("fail", () => Promise.reject(new Error("turn back")), { retry: { maxAttempts: 1 } })
    .noUndo("a test");
  bus.register(first, noted);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => tx.start(first, { id: "a" }));
  await ends(sagaId, "compensated");
  await until(async () => (await notes()).length === 1);
  expect(await published()).toEqual(['noted {"id":"a","attempt":3}', 'noted {"id":"a","attempt":-1}']);
  expect(await instances()).toEqual(["first a", "noted child of a"]);
  const { rows } = await pool.query<{ saga: string; cause: string; same: boolean }>(
    `select m.saga_id as saga, m.causation_id as cause, m.correlation_id = s.message_correlation_id as same
       from sagabox.message m join sagabox.saga_instance s on s.id = $1`,
    [sagaId],
  );
  expect(rows).toEqual([1, 2].map(() => ({ saga: sagaId, cause: sagaId, same: true })));
});

test("a request inside a tx step is refused", async () => {
  const { bus, ends, lines } = await setup();
  const asking = saga("asking", options)
    .tx(
      "ask",
      async () => void (await bus.request(ReserveStock, { orderId: "o", sku: "s" }, { timeout: 50 })),
      {
        retry: { maxAttempts: 1 },
      },
    )
    .noUndo("a test");
  bus.register(asking);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => tx.start(asking, { id: "a" }));
  await ends(sagaId, "compensated");
  expect((await lines(sagaId)).map(({ note }) => note).join()).toContain("A request must not be made inside");
});

const Told = event("told", {
  schema: z.object({ id: z.string(), n: z.number().int() }),
  key: ({ id }) => id,
});
const Untold = event("untold", { schema: z.object({ id: z.string() }), key: ({ id }) => id });
const never = { retry: { maxAttempts: 1 } } as const;

test("the saga of the guide publishes its event once", async () => {
  const { bus, ends, published } = await setup();
  bus.register(guide.confirmOrder);
  stockService(bus);
  await bus.run();
  const input = { orderId: "o1", sku: "tea" };
  const { sagaId } = await bus.transaction((tx) => tx.start(guide.confirmOrder, input));
  await ends(sagaId, "completed");
  const announced = (await published()).filter((text) => text.startsWith("guide.together.confirmed"));
  expect(announced).toEqual(['guide.together.confirmed {"orderId":"o1","reservationId":"r-o1"}']);
});

test("publish steps, also in a group, are undone by compensating events", async () => {
  const { bus, pool, ends, published } = await setup();
  const order = saga("order", options)
    .publish("first", Told, ({ input: { id } }) => ({ id, n: 1 }))
    .undo(Untold, ({ input: { id } }) => ({ id: `${id}1` }))
    .publish("quiet", Told, ({ input: { id } }) => ({ id, n: 2 }))
    .noUndo("a statistic")
    .all("both", (g) =>
      g
        .publish("a", Told, ({ input: { id } }) => ({ id, n: 3 }), {
          undo: [Untold, ({ input: { id } }) => ({ id: `${id}3` })],
        })
        .publish("b", Told, ({ input: { id } }) => ({ id, n: 4 }), { undo: { none: "a statistic" } }),
    )
    .run("fail", () => Promise.reject(new Error("turn back")), never)
    .noUndo("a test");
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => tx.start(order, { id: "x" }));
  await ends(sagaId, "compensated");
  expect(await published()).toEqual([
    ...[1, 2, 3, 4].map((n) => `told {"id":"x","n":${n}}`),
    'untold {"id":"x3"}',
    'untold {"id":"x1"}',
  ]);
  const { rows } = await pool.query("select distinct saga_id from sagabox.message");
  expect(rows).toEqual([{ saga_id: sagaId }]);
});

test("an event that violates its contract fails the step; after the pivot the saga waits for an operator", async () => {
  const { bus, ends, published, lines } = await setup();
  const wrong = saga("wrong", options)
    .publish("tell", Told, ({ input: { id } }) => ({ id, n: 0.5 }))
    .noUndo("a test");
  const pivoted = saga("pivoted", options)
    .publish("told", Told, ({ input: { id } }) => ({ id, n: 1 }))
    .pivot()
    .all("after", (g) => g.publish("ok", Told, ({ input: { id } }) => ({ id, n: 2 })))
    .publish("tell", Told, ({ input: { id } }) => ({ id, n: 0.5 }));
  bus.register(wrong, pivoted);
  await bus.run();
  const [first, second] = await bus.transaction(async (tx) => [
    await tx.start(wrong, { id: "a" }),
    await tx.start(pivoted, { id: "b" }),
  ]);
  await ends(first?.sagaId ?? "", "compensated");
  await ends(second?.sagaId ?? "", "failed");
  expect((await lines(first?.sagaId ?? "")).map(({ note }) => note).join()).toContain("told");
  expect(await published()).toEqual(['told {"id":"b","n":1}', 'told {"id":"b","n":2}']);
});

test("the diagram of a saga names the events that it publishes", () => {
  const drawn = sagaDiagram(guide.confirmOrder.definition);
  expect(drawn).toContain("publishes guide.together.confirmed");
  expect(drawn).toContain("publishes guide.together.withdrawn");
});
