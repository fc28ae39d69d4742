import { createBus } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { auditHarness } from "../../test/support/audit.ts";
import { auditMonths } from "../../test/support/audit-months.ts";
import { RecordingObserver } from "../../test/support/recording-observer.ts";
import { AuditWatch, type AuditWatchOptions } from "./watch.ts";

type House = Awaited<ReturnType<typeof auditHarness>>;

function watchOf({ database, observer }: House, more: Partial<AuditWatchOptions> = {}): AuditWatch {
  return new AuditWatch({ database, schema: "sagabox", observer, everyMs: 1_000, begin: () => 0, ...more });
}

/** Four rounds of seals; the second of them has two, one for each log. */
async function setup() {
  const house = await auditHarness();
  for (const saga of ["s-1", "s-2", "s-3", "s-4"]) {
    await house.lines(3, saga);
    if (saga === "s-2") await house.act("test.done");
    await house.seal();
  }
  /** Looks until the end of the chain. Resolves with how many looks it took. */
  const round = async (watch: AuditWatch): Promise<number> => {
    const before = house.observer.of("audit.verified").length;
    do await watch.verifyNext();
    while (house.observer.of("audit.verified").at(-1)?.wrapped !== true);
    return house.observer.of("audit.verified").length - before;
  };
  return { ...house, round };
}

test("SEC-19: a row of long ago that was changed is noticed piece by piece, and told once", async () => {
  const house = await setup();
  const { observer, round, tamper } = house;
  const watch = watchOf(house, { rows: 3 });
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

test("SEC-19: seals that cover little are taken in bounded number, and a seal that is gone is noticed", async () => {
  const house = await setup();
  const { observer, round, tamper } = house;
  const watch = watchOf(house, { seals: 2 });
  expect(await round(watch)).toBe(3);
  expect(observer.of("audit.verified").map(({ seals }) => seals)).toEqual([3, 2, 0]);
  await tamper("delete from sagabox.audit_seal where number = 1");
  await round(watch);
  expect(observer.of("audit.broken")).toMatchObject([{ kind: "seal_missing", seal: "1" }]);
});

test("SEC-19: wherever in the chain a process begins, it accuses nobody and sees everything by its second round", async () => {
  const house = await setup();
  const { observer, round, tamper } = house;
  const watches = [0, 0.1, 0.3, 0.45, 0.7, 0.99].map((share) => watchOf(house, { begin: () => share }));
  for (const watch of watches) await round(watch);
  expect(observer.of("audit.broken")).toEqual([]);
  await tamper("update sagabox.saga_audit_log set note = 'x' where id = 5");
  for (const watch of watches) await round(watch);
  expect(observer.of("audit.broken")).toHaveLength(watches.length);
});

test("SEC-19: months that are dropped on the way are not missed, and rows that nobody would seal are noticed", async () => {
  const house = await auditMonths();
  const watch = watchOf(house, { seals: 1 });
  expect(await watch.verifyNext()).toEqual([]);
  await house.lines(2);
  await house.seal();
  await house.tidy();
  await house.seal();
  for (let looks = 0; looks < 6; looks += 1) expect(await watch.verifyNext()).toEqual([]);
  expect(house.observer.of("audit.verified").some(({ wrapped }) => wrapped)).toBe(true);
  await house.tamper(
    `insert into sagabox.saga_audit_log (xid, saga_id, version, event_type, cause) values ('5', 's', 1, 'noted', 'x')`,
  );
  const whole = watchOf(house);
  expect(await whole.verifyNext()).toMatchObject([{ kind: "row_added", log: "saga" }]);
});

test("SEC-19: a look that is stopped in the middle tells nothing half, and the next one begins where it began", async () => {
  const house = await setup();
  const { observer, tamper } = house;
  const watch = watchOf(house);
  await tamper("update sagabox.saga_audit_log set note = 'x' where id = 2");
  expect(await watch.verifyNext(AbortSignal.abort())).toEqual([]);
  expect(observer.told.filter(({ name }) => /^audit\.(broken|verified)$/.test(name))).toEqual([]);
  expect(await watch.verifyNext()).toMatchObject([{ kind: "row_changed", id: "2" }]);
});

test("SEC-19: a worker notices by itself, while nobody asks for anything to be verified", async () => {
  const house = await setup();
  const observer = new RecordingObserver();
  const bus = createBus({
    service: "bank",
    database: house.url,
    log: false,
    observers: [observer],
    audit: { sealEvery: "1s" },
  });
  onTestFinished(async () => void (await bus.stop()));
  await bus.run({ parts: ["upkeep"] });
  await observer.until("audit.verified");
  expect(observer.of("audit.broken")).toEqual([]);
  await house.tamper("update sagabox.saga_audit_log set note = 'x' where id = 2");
  expect(await observer.until("audit.broken")).toMatchObject([{ kind: "row_changed", seal: "1" }]);
});
