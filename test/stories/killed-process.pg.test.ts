import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { createBus, event } from "../../src/index.ts";
import { cliInProcess } from "../support/run-cli.ts";
import { temporaryDatabase } from "../support/database.ts";
import { program } from "../support/programs.ts";

const worker = program(new URL("./killed-worker.ts", import.meta.url));
const Placed = event("order.placed", { schema: z.object({ n: z.number() }), key: ({ n }) => String(n) });
const ORDERS = Array.from({ length: 40 }, (_, n) => ({ n }));

test.skipIf(process.platform !== "linux")(
  "A8: what a killed process left behind is done by another one while its lease would still have run",
  async () => {
    const { pool, url } = await temporaryDatabase({ max: 30, leakGuard: false });
    const rows = async <R extends object>(sql: string): Promise<R[]> => (await pool.query<R>(sql)).rows;
    const bus = createBus({ service: "shop", database: pool, worker: "survivor", log: false });
    onTestFinished(async () => void (await bus.stop()));
    await bus.migrate();
    await pool.query("create table effect (n integer, worker text)");
    bus.on(Placed, { consumer: "books" }, async ({ data }, { tx }) => {
      await tx.query("insert into effect (n, worker) values ($1, 'survivor')", [data.n]);
    });

    const victim = spawn(process.execPath, [worker, url], { stdio: "inherit" });
    onTestFinished(() => void victim.kill("SIGKILL"));
    const owned = "select count(*)::int as n from sagabox.relay_lane where owner like 'victim/%'";
    await expect.poll(() => rows(owned)).toEqual([{ n: 512 }]);
    // No worker counts as dead on a server that has just started.
    const settled = "select pg_postmaster_start_time() < clock_timestamp() - interval '30 s' as settled";
    await expect.poll(() => rows(settled), { timeout: 40_000 }).toEqual([{ settled: true }]);
    await bus.transaction(async (tx) => {
      for (const order of ORDERS) await tx.publish(Placed, order);
    });
    const busy =
      "select count(*) > 0 as busy from pg_stat_activity where query like '%pg_sleep(600)%' and state = 'active'";
    await expect.poll(() => rows(busy)).toEqual([{ busy: true }]);

    const died = once(victim, "exit");
    victim.kill("SIGKILL");
    await died;
    await pool.query(
      "create table lease as select max(lease_until) as until from sagabox.member where worker = 'victim'",
    );
    // A dead process is not shown as working, though its lease still runs.
    const status = () => cliInProcess(["status", "--check"], { DATABASE_URL: url });
    await expect.poll(async () => (await status()).code).toBe(3);
    expect((await status()).stdout).toMatch(/no lane is owned by a running worker[^]*\nvictim +gone for 0 s/);
    await bus.run();
    const done =
      "select count(*)::int as done, count(distinct n)::int as orders from effect where worker = 'survivor'";
    await expect.poll(() => rows(done)).toEqual([{ done: ORDERS.length, orders: ORDERS.length }]);
    expect(await rows("select until > clock_timestamp() as still from lease")).toEqual([{ still: true }]);
    // What it was running when it died was run alone, once, and is suspect no more.
    await expect.poll(() => rows("select 1 from sagabox.suspect")).toEqual([]);
    expect(await rows("select 1 from sagabox.running where member like 'victim%'")).toEqual([]);
  },
  60_000,
);
