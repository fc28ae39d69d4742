import { createServer, type AddressInfo } from "node:net";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../test/support/database.ts";
import { until } from "../../test/support/relays.ts";
import { ScriptedTransport } from "../../test/support/scripted-transport.ts";
import { event } from "../message/index.ts";
import { saga } from "../saga/index.ts";
import type { Bus } from "./bus.ts";
import type { BusOptions } from "./bus-options.ts";
import { createBus } from "./create-bus.ts";

const Noted = event("noted", { schema: z.object({}) });

async function setup(options: Partial<BusOptions> = {}) {
  const { pool, url } = await temporaryDatabase({ migrated: true, max: 30 });
  const bus = createBus({ service: "shop", database: pool, log: false, ...options });
  onTestFinished(async () => void (await bus.stop()));
  return { bus, pool, url, borrowed: () => pool.totalCount - pool.idleCount };
}

async function takenPort() {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return { port, free: () => new Promise((resolve) => server.close(resolve)) };
}

/** For what waits for sockets, while timers stand still. */
async function aMoment(): Promise<void> {
  const endMs = performance.now() + 20;
  while (performance.now() < endMs) await new Promise((resolve) => setImmediate(resolve));
}

/** Runs the bus with a handler that has begun; it ends when what is returned is called. */
async function handlerAtWork(bus: Bus): Promise<() => void> {
  const begun = new Promise<() => void>((resolve) => {
    bus.on(Noted, { consumer: "notes", deadline: "10m" }, () => new Promise<void>(resolve));
  });
  await bus.run();
  await bus.transaction((tx) => tx.publish(Noted, {}));
  return begun;
}

test("G1: a start that failed can be made again, and then everything runs", async () => {
  const { bus } = await setup();
  let handled = 0;
  bus.on(Noted, { consumer: "notes" }, () => void (handled += 1));
  bus.register(
    saga("noting", { version: 1, input: z.object({ id: z.string() }), key: ({ id }) => id })
      .run("note", async () => undefined)
      .noUndo("nothing to undo"),
  );
  const { port, free } = await takenPort();
  await expect(bus.run({ port })).rejects.toMatchObject({ code: "LISTEN_FAILED" });
  await free();
  expect(await bus.run({ port })).toEqual({ port });
  expect(await bus.run({ port })).toEqual({ port });
  await bus.transaction((tx) => tx.publish(Noted, {}));
  await until(() => handled === 1);
  expect(await bus.stop()).toEqual({ clean: true });
});

test("G1: a stop while the bus starts leaves nothing running", async () => {
  const { bus, borrowed } = await setup();
  bus.on(Noted, { consumer: "notes" }, () => undefined);
  const running = bus.run();
  const refused = expect(running).rejects.toMatchObject({ code: "BUS_STOPPED" });
  expect(await bus.stop()).toEqual({ clean: true });
  await refused;
  expect(borrowed()).toBe(0);
});

test("G1: a transport that cannot be closed does not keep the rest from being closed, and the stop says so", async () => {
  const transport = new ScriptedTransport();
  transport.close = () => {
    throw new Error("already gone");
  };
  const { url } = await setup();
  const bus = createBus({ service: "shop", database: url, log: false, transport });
  await bus.run();
  expect(await bus.stop()).toEqual({ clean: false });
  await expect(bus.transaction(async () => undefined)).rejects.toMatchObject({ code: "BUS_STOPPED" });
});

test("G1: a handler has the whole shutdown timeout, however long that is", async () => {
  const { bus } = await setup({ shutdownTimeout: "60s" });
  const finish = await handlerAtWork(bus);
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  let stopped = false;
  const stopping = bus.stop().finally(() => (stopped = true));
  for (let passedMs = 0; passedMs < 56_000 && !stopped; passedMs += 1_000) {
    await vi.advanceTimersByTimeAsync(1_000);
    await aMoment();
  }
  expect(stopped).toBe(false);
  finish();
  vi.useRealTimers();
  expect(await stopping).toEqual({ clean: true });
});

test("G1: a stop whose time was over before a handler ended says so", async () => {
  const { bus } = await setup({ shutdownTimeout: "50ms" });
  const finish = await handlerAtWork(bus);
  onTestFinished(finish);
  expect(await bus.stop()).toEqual({ clean: false, timedOut: true });
});

test("G1: a handler that was cut off makes the stop unclean", async () => {
  const { bus } = await setup({ shutdownTimeout: "2s" });
  let signal: AbortSignal | undefined;
  const begun = new Promise<void>((resolve) => {
    bus.on(Noted, { consumer: "notes", deadline: "10m" }, (_, context) => {
      signal = context.signal;
      resolve();
      return new Promise<void>(() => undefined);
    });
  });
  await bus.run();
  await bus.transaction((tx) => tx.publish(Noted, {}));
  await begun;
  expect(await bus.stop()).toEqual({ clean: false, timedOut: true });
  expect(signal?.aborted).toBe(true);
});

test("G1: a local step of a saga that was cut off makes the stop unclean", async () => {
  const { bus } = await setup({ shutdownTimeout: "1s" });
  let begun = false;
  const endless = saga("endless", { version: 1, input: z.object({ id: z.string() }), key: ({ id }) => id })
    .run("wait", () => {
      begun = true;
      return new Promise<undefined>(() => undefined);
    })
    .noUndo("nothing to undo");
  bus.register(endless);
  await bus.run();
  await bus.transaction((tx) => bus.start(tx, endless, { id: "a" }));
  await until(() => begun);
  expect(await bus.stop()).toEqual({ clean: false, timedOut: true });
});

test("G1: from the moment of the stop no consumer begins anything, however long another takes to end", async () => {
  const { bus } = await setup();
  let begun = 0;
  let finish = (): void => undefined;
  const busy = new Promise<void>((resolve) => {
    bus.on(Noted, { consumer: "first", concurrency: 1 }, async () => {
      begun += 1;
      await new Promise((later) => setTimeout(later, 20));
    });
    bus.on(Noted, { consumer: "last", concurrency: 1 }, () => {
      resolve();
      return new Promise<void>((end) => (finish = end));
    });
  });
  await bus.run();
  await bus.transaction(async (tx) => {
    for (let n = 0; n < 200; n += 1) await tx.publish(Noted, {});
  });
  await Promise.all([busy, until(() => begun > 2)]);
  const stopping = bus.stop();
  await aMoment();
  const before = begun;
  await new Promise((later) => setTimeout(later, 300));
  expect(begun).toBe(before);
  finish();
  expect(await stopping).toEqual({ clean: true });
});

test("A9: what commits while the bus is stopped is sent, and its connection given back", async () => {
  const { bus, pool, borrowed } = await setup();
  await pool.query("create table slow ()");
  await pool.query(`create function doze() returns trigger language plpgsql as
    $$ begin perform pg_sleep(0.3); return null; end $$`);
  await pool.query(`create constraint trigger doze after insert on slow deferrable initially deferred
    for each row execute function doze()`);
  const committing = bus.transaction(async (tx) => {
    await tx.query("insert into slow default values");
    await tx.publish(Noted, {});
  });
  await until(async () => {
    const { rows } = await pool.query(
      "select 1 from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()",
    );
    return rows.length > 0;
  });
  await bus.stop();
  await committing;
  await until(async () => (await pool.query("select 1 from sagabox.outbox")).rows.length === 0);
  await until(() => borrowed() === 0);
});

test("G12: a role with dates of another style migrates, runs and makes its partitions", async () => {
  const { url, pool } = await temporaryDatabase({ max: 30 });
  const styled = new URL(url);
  styled.searchParams.set(
    "options",
    "-c datestyle=German -c intervalstyle=sql_standard -c timezone=Asia/Kolkata",
  );
  const bus = createBus({ service: "shop", database: styled.href, log: false });
  onTestFinished(async () => void (await bus.stop()));
  let handled = 0;
  bus.on(Noted, { consumer: "notes" }, () => void (handled += 1));
  await bus.migrate();
  await bus.run();
  await bus.transaction((tx) => tx.publish(Noted, {}));
  await until(() => handled === 1);
  const { rows } = await pool.query(
    "select count(*)::int as days from pg_class where relname ~ '^message_[0-9]{8}$' and relispartition",
  );
  expect(rows[0].days).toBeGreaterThanOrEqual(8);
});
