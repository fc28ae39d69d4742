import { expect, test } from "vitest";
import { cliInProcess } from "../../../test/support/run-cli.ts";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { rolesHarness } from "../../../test/support/roles-harness.ts";
import { pgDatabase } from "../../storage/index.ts";
import { tune } from "./tune.ts";

async function setup() {
  const { pool, url } = await temporaryDatabase({ max: 20 });
  const schemas = async (): Promise<number | null> =>
    (await pool.query("select 1 from pg_namespace where nspname like 'sagabox%'")).rowCount;
  return { database: pgDatabase(pool), schemas, url };
}

test("G11: every setting is measured on the server, and nothing is left behind", async () => {
  const { database, schemas } = await setup();
  const seen: number[] = [];
  const report = await tune(database, {
    seconds: 1,
    batchSizes: [10, 50],
    concurrencies: [1, 2],
    handlers: [1, 3, 1_000],
    cores: 2,
    onMeasured: (done) => seen.push(done),
  });
  expect(report.measurements.map(({ batchSize, concurrency }) => [batchSize, concurrency])).toEqual([
    [10, 1],
    [50, 1],
    [10, 2],
    [50, 2],
  ]);
  for (const { write, drain } of report.measurements) {
    expect(write.perSecond).toBeGreaterThan(0);
    expect(drain.perSecond).toBeGreaterThan(0);
    expect(drain.p95Ms).toBeGreaterThanOrEqual(drain.p50Ms);
  }
  expect(report.handling.map(({ concurrency }) => concurrency)).toEqual([1, 3]); // more than it may take is left out
  for (const { handled } of report.handling) expect(handled.perSecond).toBeGreaterThan(0);
  expect([report.finished, seen, await schemas()]).toEqual([true, [1, 2, 3, 4, 5, 6], 0]);
  const settings = report.proposals.map(({ setting }) => setting);
  expect(settings).toEqual(expect.arrayContaining(["SAGABOX_BATCH_SIZE", "SAGABOX_CONCURRENCY"]));
});

test("G11: stopped in the middle it says so, and drops its schema all the same", async () => {
  const { database, schemas } = await setup();
  const stop = new AbortController();
  const report = await tune(database, {
    seconds: 60,
    cores: 2,
    signal: stop.signal,
    batchSizes: [10],
    concurrencies: Array.from({ length: 600 }, () => 1),
    onMeasured: () => stop.abort(),
  });
  expect([report.finished, report.measurements.length, await schemas()]).toEqual([false, 1, 0]);
});

test("G11: who may not create schemas is told so before anything is done", async () => {
  const { as } = await rolesHarness();
  await expect(tune(pgDatabase(await as("relay")), { cores: 1 })).rejects.toMatchObject({
    code: "STORAGE_PERMISSION_DENIED",
  });
});

test(
  "G11: the command asks before it loads a server, prints the table and the proposals",
  { timeout: 90_000 },
  async () => {
    const { schemas, url } = await setup();
    const env = { DATABASE_URL: url };
    const refused = await cliInProcess(["tune"], env);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining("--yes")]);
    const { code, stdout } = await cliInProcess(["tune", "--seconds", "1", "--cores", "4", "--yes"], env);
    expect([code, await schemas()]).toEqual([0, 0]);
    expect(stdout).toMatch(/batch +at a time +written\/s/);
    expect(stdout).toMatch(/^2000 +8 /m);
    expect(stdout).toMatch(/handlers at a time +handled\/s/);
    expect(stdout).toMatch(/BATCH_SIZE +\d+ +\d+ messages\/s/);
    expect(stdout).toMatch(/CONCURRENCY +\d+ +\d+ messages\/s handled/);
    expect(stdout).toMatch(/pool size +9 +cores × 2/);
    expect((await cliInProcess(["tune", "--help"], {})).stdout).toContain("sagabox tune --seconds 120");
  },
);
