import { expect, test } from "vitest";
import { outboxDatabase } from "../../../test/support/outbox-rows.ts";
import { prometheus } from "../../telemetry/index.ts";
import { ConservationWatch } from "./watch.ts";

const DAY_MS = 86_400_000;

async function setup() {
  const parts = await outboxDatabase();
  const metrics = prometheus();
  const observer = {
    tell: ((name, fields) => {
      parts.observer.tell(name, fields);
      metrics.tell(name, fields);
    }) as typeof parts.observer.tell,
  };
  const watch = (worker: string) =>
    new ConservationWatch({
      database: parts.database,
      schema: "sagabox",
      worker,
      observer,
      everyMs: 1_000,
      retentions: { deadLetterMs: 14 * DAY_MS, archiveMs: 30 * DAY_MS },
    });
  const gauge = (): string | undefined => /^conservation_breaches (\d+)$/m.exec(metrics.text())?.[1];
  return { ...parts, watch, gauge };
}

test("DESIGN 7C: damage is told once, stays in the gauge until it is repaired, and is seen by every process", async () => {
  const { watch, rows, write, observer, gauge } = await setup();
  const [one, two] = [watch("one"), watch("two")];
  for (const id of ["m-1", "m-2", "m-3"]) await write({ message: { id, key: id } });
  expect(await one.look()).toEqual([]);
  expect(gauge()).toBe("0");
  await rows("create table taken as select * from sagabox.outbox where message_id = 'm-2'");
  await rows("delete from sagabox.outbox where message_id = 'm-2'");
  expect(await one.look()).toMatchObject([{ kind: "message_lost", ids: ["m-2"], count: 1 }]);
  expect(await one.look()).toHaveLength(1);
  expect(gauge()).toBe("1");
  expect(observer.of("conservation.broken")).toMatchObject([{ kind: "message_lost", count: 1, ids: "m-2" }]);
  expect(await two.look()).toMatchObject([{ kind: "message_lost" }]);
  expect(observer.of("conservation.checked").at(-1)).toMatchObject({ outcome: "elsewhere", breaches: 1 });
  await rows("insert into sagabox.outbox select * from taken");
  expect(await one.look()).toEqual([]);
  expect(gauge()).toBe("0");
});

test("DESIGN 7C: whoever stops gives up its turn at once, and the next goes on where it was", async () => {
  const { watch, rows, write, observer } = await setup();
  const [one, two] = [watch("one"), watch("two")];
  await write({ message: { id: "m-1" } });
  await one.start();
  await observer.until("conservation.checked");
  await one.stop();
  await rows("delete from sagabox.outbox");
  expect(await two.look()).toMatchObject([{ kind: "message_lost", ids: ["m-1"] }]);
  expect(
    await rows("select claimed_by, checked_at is not null as checked from sagabox.conservation"),
  ).toEqual([{ claimed_by: "two", checked: true }]);
});

test("DESIGN 7C: what was forgotten with its retention is not missed", async () => {
  const { database, observer, rows, write } = await setup();
  await write({ message: { id: "old" } });
  await rows("delete from sagabox.outbox");
  await rows(
    "update sagabox.message set written_on = written_on - 3, written_at = written_at - interval '3 days'",
  );
  const retentions = { deadLetterMs: 2 * DAY_MS, archiveMs: 30 * DAY_MS };
  const options = { database, schema: "sagabox", worker: "w", observer, everyMs: 1_000 };
  expect(await new ConservationWatch({ ...options, retentions }).look()).toEqual([]);
  const longer = { deadLetterMs: 5 * DAY_MS, archiveMs: 30 * DAY_MS };
  expect(await new ConservationWatch({ ...options, retentions: longer }).look()).toHaveLength(1);
});
