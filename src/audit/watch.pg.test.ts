import { createBus } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { auditHarness, auditMonths } from "../../test/support/audit.ts";
import { RecordingObserver } from "../../test/support/recording-observer.ts";
import { AuditWatch, type AuditWatchOptions } from "./watch.ts";

type House = Awaited<ReturnType<typeof auditHarness>>;

function watchOf({ database, observer }: House, more: Partial<AuditWatchOptions> = {}): AuditWatch {
  return new AuditWatch({ database, schema: "sagabox", observer, everyMs: 1_000, begin: () => 0, ...more });
}

/** Four rounds of seals; the second round has two seals, one for each log. */
async function setup() {
  const harness = await auditHarness();
  for (const saga of ["s-1", "s-2", "s-3", "s-4"]) {
    await harness.lines(3, saga);
    if (saga === "s-2") await harness.act("test.done");
    await harness.seal();
  }
  /** Verifies sections until the end of the chain. Resolves with the number of sections. */
  const round = async (watch: AuditWatch): Promise<number> => {
    const before = harness.observer.of("audit.verified").length;
    do await watch.verifyNext();
    while (harness.observer.of("audit.verified").at(-1)?.wrapped !== true);
    return harness.observer.of("audit.verified").length - before;
  };
  return { ...harness, round };
}

test("SEC-19: a changed old row is found section by section, and reported once", async () => {
  const harness = await setup();
  const { observer, round, tamper } = harness;
  const watch = watchOf(harness, { rows: 3 });
  expect(await round(watch)).toBe(5);
  expect(observer.of("audit.verified").map(({ rows }) => rows)).toEqual([3, 4, 3, 3, 0]);
  expect(observer.of("audit.broken")).toEqual([]);
  await tamper("update sagabox.saga_audit_log set note = 'nothing to see' where id in (2, 3, 8)");
  await round(watch);
  await round(watch);
  expect(observer.of("audit.broken")).toMatchObject([
    { kind: "row_changed", seal: "1", error: expect.stringContaining("Row 2 of saga_audit_log") as string },
    { kind: "row_changed", seal: "4", error: expect.stringContaining("Row 8 of saga_audit_log") as string },
  ]);
  expect(observer.of("audit.broken")[0]?.error).toContain("And 1 more of this kind.");
});

test("SEC-19: the number of small seals per check is bounded, and a missing seal is found", async () => {
  const harness = await setup();
  const { observer, round, tamper } = harness;
  const watch = watchOf(harness, { seals: 2 });
  expect(await round(watch)).toBe(3);
  expect(observer.of("audit.verified").map(({ seals }) => seals)).toEqual([3, 2, 0]);
  await tamper("delete from sagabox.audit_seal where number = 1");
  await round(watch);
  expect(observer.of("audit.broken")).toMatchObject([{ kind: "seal_missing", seal: "1" }]);
});

test("SEC-19: from any start position, an intact chain has no findings and is covered after two rounds", async () => {
  const harness = await setup();
  const { observer, round, tamper } = harness;
  const watches = [0, 0.1, 0.3, 0.45, 0.7, 0.99].map((share) => watchOf(harness, { begin: () => share }));
  for (const watch of watches) await round(watch);
  expect(observer.of("audit.broken")).toEqual([]);
  await tamper("update sagabox.saga_audit_log set note = 'x' where id = 5");
  for (const watch of watches) await round(watch);
  expect(observer.of("audit.broken")).toHaveLength(watches.length);
});

test("SEC-19: months dropped during the check are no findings, and rows with impossible transaction ids are", async () => {
  const harness = await auditMonths();
  const watch = watchOf(harness, { seals: 1 });
  expect(await watch.verifyNext()).toEqual([]);
  await harness.lines(2);
  await harness.seal();
  await harness.tidy();
  await harness.seal();
  for (let looks = 0; looks < 6; looks += 1) expect(await watch.verifyNext()).toEqual([]);
  expect(harness.observer.of("audit.verified").some(({ wrapped }) => wrapped)).toBe(true);
  await harness.tamper(
    `insert into sagabox.saga_audit_log (xid, saga_id, version, event_type, cause) values ('5', 's', 1, 'noted', 'x')`,
  );
  const whole = watchOf(harness);
  expect(await whole.verifyNext()).toMatchObject([{ kind: "row_added", log: "saga" }]);
});

test("SEC-19: a stopped check reports nothing, and the next one repeats its section", async () => {
  const harness = await setup();
  const { observer, tamper } = harness;
  const watch = watchOf(harness);
  await tamper("update sagabox.saga_audit_log set note = 'x' where id = 2");
  expect(await watch.verifyNext(AbortSignal.abort())).toEqual([]);
  expect(observer.emitted.filter(({ name }) => /^audit\.(broken|verified)$/.test(name))).toEqual([]);
  expect(await watch.verifyNext()).toMatchObject([{ kind: "row_changed", id: "2" }]);
});

test("SEC-19: a worker verifies the log in the background", async () => {
  const harness = await setup();
  const observer = new RecordingObserver();
  const bus = createBus({
    service: "bank",
    database: harness.url,
    log: false,
    observers: [observer],
    audit: { sealEvery: "1s" },
  });
  onTestFinished(async () => void (await bus.stop()));
  await bus.run({ parts: ["upkeep"] });
  await observer.until("audit.verified");
  expect(observer.of("audit.broken")).toEqual([]);
  await harness.tamper("update sagabox.saga_audit_log set note = 'x' where id = 2");
  expect(await observer.until("audit.broken")).toMatchObject([{ kind: "row_changed", seal: "1" }]);
});
