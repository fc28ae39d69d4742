import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { type BusOptions, createBus, event, saga } from "../index.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { program } from "../../test/support/programs.ts";
import { RecordingObserver } from "../../test/support/recording-observer.ts";

const killedDrain = program(new URL("../../test/stories/killed-drain.ts", import.meta.url));
const schema = z.object({ n: z.number(), key: z.string().optional() });
const Placed = event("drain.placed", { schema, key: ({ key = "k" }) => key });
const Billed = event("drain.billed", { schema });

async function setup({ max = 12 } = {}) {
  const { pool, url } = await temporaryDatabase({ max, migrated: true });
  await pool.query(
    "create table effect (id integer generated always as identity, what text, n integer, key text)",
  );
  const rows = async <R extends object>(sql: string): Promise<R[]> => (await pool.query<R>(sql)).rows;
  const bus = (options: Partial<BusOptions> = {}) => {
    const observer = new RecordingObserver();
    const made = createBus({
      service: "shop",
      database: pool,
      log: false,
      lease: "1s",
      outbox: { optimistic: false },
      observers: [observer],
      ...options,
    });
    onTestFinished(async () => void (await made.stop()));
    return Object.assign(made, { observer });
  };
  const publish = async (made: ReturnType<typeof bus>, count: number, keys = 1, from = 0): Promise<void> =>
    made.transaction(async (tx) => {
      for (let n = from; n < from + count; n++) await tx.publish(Placed, { n, key: `k${n % keys}` });
    });
  const owned = () =>
    rows<{ n: number }>("select count(*)::int as n from sagabox.relay_lane where owner is not null");
  const lanesOf = async (owner: string): Promise<number> =>
    (
      await rows<{ n: number }>(
        `select count(*)::int as n from sagabox.relay_lane where owner like '${owner}'`,
      )
    )[0]?.n ?? 0;
  const effects = () => rows<{ n: number; key: string }>("select n, key from effect order by id");
  return { url, pool, rows, bus, publish, owned, lanesOf, effects };
}

type Setup = Awaited<ReturnType<typeof setup>>;

/** Handles `Placed` by writing its number. */
function bookOrders(bus: ReturnType<Setup["bus"]>, pause?: (n: number) => Promise<unknown>): void {
  bus.on(Placed, { consumer: "books" }, async ({ data }, { tx }) => {
    await pause?.(data.n);
    await tx.query("insert into effect (what, n, key) values ('booked', $1, $2)", [data.n, data.key]);
  });
}

function inOrder(effects: readonly { n: number; key: string }[]): boolean {
  const last = new Map<string, number>();
  return effects.every(({ n, key }) => {
    const before = last.get(key) ?? -1;
    last.set(key, n);
    return n > before;
  });
}

const nothing = {
  scheduled: 0,
  sent: 0,
  handled: 0,
  skipped: 0,
  retried: 0,
  deadLettered: 0,
  sagaTransitions: 0,
  more: false,
};

test("one drain sends, handles, and handles what the handlers published, and gives every lane back", async () => {
  const { bus, publish, owned, rows, effects } = await setup();
  const shop = bus();
  shop.on(Placed, { consumer: "books" }, async ({ data }, { tx, publish: say }) => {
    await tx.query("insert into effect (what, n, key) values ('booked', $1, $2)", [data.n, data.key]);
    await say(Billed, data);
  });
  shop.on(Billed, { consumer: "mails" }, () => undefined);
  await shop.drain(); // subscribes the consumers
  await publish(shop, 40, 5);
  await shop.transaction((tx) => tx.publish(Placed, { n: 99, key: "late" }, { delay: 1 }));
  await expect
    .poll(() => rows("select 1 from sagabox.scheduled where due_at <= clock_timestamp()"))
    .toHaveLength(1);
  const result = await shop.drain({ deadline: "60s" });
  expect(result).toEqual({ ...nothing, scheduled: 1, sent: 82, handled: 82 });
  const done = await effects();
  expect([done.length, inOrder(done)]).toEqual([41, true]);
  expect(await owned()).toEqual([{ n: 0 }]);
  expect(await rows("select 1 from sagabox.member")).toEqual([]);
  expect(await rows("select 1 from sagabox.running where member <> ''")).toEqual([]);
  expect(await shop.drain()).toEqual(nothing);
});

test("a drain works with a pool of one connection, and without LISTEN", async () => {
  const { bus, publish, effects } = await setup({ max: 1 });
  const shop = bus();
  bookOrders(shop);
  await shop.drain();
  await publish(shop, 10, 3);
  expect(await shop.drain({ deadline: "60s" })).toMatchObject({ sent: 10, handled: 10, more: false });
  expect(await effects()).toHaveLength(10);
});

test("beside a running worker a drain does nothing, and the worker keeps every lane", async () => {
  const { bus, publish, owned, effects } = await setup({ max: 40 });
  const [worker, function_] = [bus({ worker: "long" }), bus()];
  for (const one of [worker, function_]) bookOrders(one);
  await worker.run();
  await expect.poll(owned).toEqual([{ n: 512 }]);
  const drains = Array.from({ length: 3 }, async () => {
    await publish(worker, 20, 4);
    return function_.drain({ deadline: "30s" });
  });
  expect(await Promise.all(drains)).toEqual([nothing, nothing, nothing]);
  await expect.poll(async () => (await effects()).length).toBe(60);
  expect(worker.observer.of("lanes.released")).toEqual([]);
  expect(worker.observer.of("lanes.lost")).toEqual([]);
  expect(await owned()).toEqual([{ n: 512 }]);
});

test("a worker that starts during a drain gets all lanes, and nothing is handled twice", async () => {
  const { bus, publish, lanesOf, effects } = await setup({ max: 40 });
  const [worker, function_] = [bus({ worker: "long" }), bus()];
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  bookOrders(function_, (n) => (n === 0 ? held : Promise.resolve()));
  bookOrders(worker);
  await function_.drain();
  await publish(function_, 60, 6);
  const draining = function_.drain({ deadline: "60s" });
  await expect.poll(async () => (await effects()).length).toBeGreaterThan(20);
  await worker.run();
  // The lane whose handler still runs is released when it ends.
  await expect.poll(async () => (await lanesOf("long/%")) >= 511).toBe(true);
  release();
  await draining;
  await expect.poll(async () => (await effects()).length, { timeout: 20_000 }).toBe(60);
  const done = await effects();
  expect(new Set(done.map(({ n }) => n)).size).toBe(60);
  expect(inOrder(done)).toBe(true);
});

test("two drains at once share the work: each message is handled once, in order per key", async () => {
  const { bus, publish, effects } = await setup({ max: 40 });
  const [one, two] = [bus(), bus()];
  for (const each of [one, two]) bookOrders(each);
  await one.drain();
  await publish(one, 200, 10);
  const results = await Promise.all([
    one.drain({ deadline: "60s" }),
    two.drain({ deadline: "60s" }),
    one.drain({ deadline: "60s" }),
  ]);
  const sum = (pick: "sent" | "handled"): number =>
    results.reduce((total, result) => total + result[pick], 0);
  expect([sum("sent"), sum("handled"), results.map(({ more }) => more)]).toEqual([
    200,
    200,
    [false, false, false],
  ]);
  const done = await effects();
  expect([done.length, inOrder(done)]).toEqual([200, true]);
});

test("a message that is committed while another drain ends is not left behind", async () => {
  const { bus, publish, effects } = await setup({ max: 40 });
  const shop = bus();
  bookOrders(shop);
  await shop.drain();
  await Promise.all(
    Array.from({ length: 20 }, async (_, n) => {
      await publish(shop, 1, 1, n);
      await shop.drain({ deadline: "60s" });
      expect((await effects()).map((effect) => effect.n)).toContain(n);
    }),
  );
  expect(await effects()).toHaveLength(20);
});

test("at the deadline a running handler is ended, its message is given back, and the next drain handles it", async () => {
  const { bus, publish, owned, effects, rows } = await setup();
  const shop = bus();
  let isSlow = true;
  bookOrders(shop, (n) => (isSlow && n === 5 ? new Promise(() => undefined) : Promise.resolve()));
  await shop.drain();
  await publish(shop, 10, 1);
  const first = await shop.drain({ deadline: "2s" });
  expect(first).toMatchObject({ sent: 10, handled: 5, more: true });
  expect((await effects()).map(({ n }) => n)).toEqual([0, 1, 2, 3, 4]);
  expect(await owned()).toEqual([{ n: 0 }]);
  expect(
    await rows(
      "select 1 from pg_stat_activity where datname = current_database() and state like 'idle in %'",
    ),
  ).toEqual([]);
  isSlow = false;
  expect(await shop.drain({ deadline: "60s" })).toMatchObject({ handled: 5, more: false });
  expect((await effects()).map(({ n }) => n)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test("maxMessages limits what one call sends and handles, and `more` says that the rest waits", async () => {
  const { bus, publish, effects } = await setup();
  const shop = bus();
  bookOrders(shop);
  await shop.drain();
  await publish(shop, 30, 3);
  let total = 0;
  for (let more = true; more;) {
    const result = await shop.drain({ maxMessages: 7, deadline: "60s" });
    expect(result.sent + result.handled).toBeLessThanOrEqual(7);
    total += result.sent + result.handled;
    more = result.more;
  }
  expect(total).toBe(60);
  const done = await effects();
  expect([done.length, inOrder(done)]).toEqual([30, true]);
  await expect(shop.drain({ maxMessages: 0 })).rejects.toMatchObject({ code: "OPTIONS_INVALID" });
});

test("a failed attempt is counted and repeated by a later drain; one that gives up becomes a dead letter", async () => {
  const { bus, publish, rows } = await setup();
  const shop = bus();
  const retry = { maxAttempts: 2, firstDelay: 1, maxDelay: 1 };
  shop.on(Placed, { consumer: "books", retry }, () => Promise.reject(new Error("not today")));
  await shop.drain();
  await publish(shop, 1);
  let [retried, deadLettered] = [0, 0];
  for (let round = 0; round < 50 && deadLettered === 0; round++) {
    const result = await shop.drain({ deadline: "30s" });
    retried += result.retried;
    deadLettered += result.deadLettered;
  }
  expect([retried, deadLettered]).toEqual([1, 1]);
  expect(await rows("select reason from sagabox.dead_letter")).toEqual([{ reason: "exhausted" }]);
});

test("a drain starts the steps of sagas and fires their timers", async () => {
  const { bus, rows } = await setup();
  const shop = bus();
  const nap = saga("nap", { version: 1, input: z.object({ id: z.string() }), key: ({ id }) => id })
    .delay("doze", "200ms")
    .run("wake", () => "up")
    .noUndo("a nap has no effect");
  shop.register(nap);
  const { sagaId } = await shop.transaction((tx) => tx.start(nap, { id: "1" }));
  const status = () =>
    rows<{ status: string }>(`select status from sagabox.saga_instance where id = '${sagaId}'`);
  let transitions = 0;
  await expect
    .poll(async () => {
      transitions += (await shop.drain({ deadline: "30s" })).sagaTransitions;
      return status();
    })
    .toEqual([{ status: "completed" }]);
  expect(transitions).toBeGreaterThan(0);
  expect(await shop.drain()).toEqual(nothing);
});

test("after a kill in the middle of a drain the next one handles the rest: nothing lost, nothing twice", async () => {
  const { bus, publish, effects, url } = await setup({ max: 20 });
  const shop = bus();
  bookOrders(shop);
  await shop.drain();
  await publish(shop, 50, 5);
  const victim = spawn(process.execPath, [killedDrain, url], { stdio: "inherit" });
  onTestFinished(() => void victim.kill("SIGKILL"));
  await expect.poll(async () => (await effects()).length, { timeout: 20_000 }).toBeGreaterThan(5);
  const died = once(victim, "exit");
  victim.kill("SIGKILL");
  await died;
  await expect
    .poll(
      async () => {
        await shop.drain({ deadline: "30s" });
        return (await effects()).length;
      },
      { timeout: 30_000 },
    )
    .toBe(50);
  const done = await effects();
  expect(new Set(done.map(({ n }) => n)).size).toBe(50);
  expect(inOrder(done)).toBe(true);
}, 60_000);

test("stop() ends a running drain, and a stopped bus refuses another", async () => {
  const { bus, publish, owned } = await setup();
  const shop = bus({ shutdownTimeout: "5s" });
  bookOrders(shop, () => new Promise(() => undefined));
  await shop.drain();
  await publish(shop, 1);
  const draining = shop.drain({ deadline: "15s" });
  await shop.observer.until("relay.published");
  await shop.stop();
  expect(await owned()).toEqual([{ n: 0 }]);
  await draining;
  await expect(shop.drain()).rejects.toMatchObject({ code: "BUS_STOPPED" });
});
