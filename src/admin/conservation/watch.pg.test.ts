import { expect, test } from "vitest";
import { outboxDatabase } from "../../../test/support/relays.ts";
import { prometheus } from "../../telemetry/index.ts";
import { verifyConservation } from "./verify.ts";
import { ConservationWatch } from "./watch.ts";

const DAY_MS = 86_400_000;

async function setup() {
  const parts = await outboxDatabase();
  const metrics = prometheus();
  const observer = {
    emit: ((name, fields) => {
      parts.observer.emit(name, fields);
      metrics.emit(name, fields);
    }) as typeof parts.observer.emit,
  };
  const watch = (worker: string, keptDays = 14) =>
    new ConservationWatch({
      database: parts.database,
      schema: "sagabox",
      worker,
      observer,
      everyMs: 1_000,
      retentions: { deadLetterMs: keptDays * DAY_MS, archiveMs: 30 * DAY_MS },
    });
  const gauge = (): string | undefined => /^conservation_breaches (\d+)$/m.exec(metrics.text())?.[1];
  return { ...parts, watch, gauge };
}

test("DESIGN 7C: damage is told once, stays in the gauge until it is repaired, and is seen by every process", async () => {
  const { watch, rows, write, observer, gauge } = await setup();
  const [one, two] = [watch("one"), watch("two")];
  for (const id of ["m-1", "m-2", "m-3"]) await write({ message: { id, key: id } });
  expect(await one.runPass()).toEqual([]);
  expect(gauge()).toBe("0");
  await rows("create table taken as select * from sagabox.outbox where message_id = 'm-2'");
  await rows("delete from sagabox.outbox where message_id = 'm-2'");
  expect(await one.runPass()).toMatchObject([{ kind: "message_lost", ids: ["m-2"], count: 1 }]);
  expect(await one.runPass()).toHaveLength(1);
  expect(gauge()).toBe("1");
  expect(observer.of("conservation.broken")).toMatchObject([{ kind: "message_lost", count: 1, ids: "m-2" }]);
  expect(await two.runPass()).toMatchObject([{ kind: "message_lost" }]);
  expect(observer.of("conservation.checked").at(-1)).toMatchObject({ outcome: "elsewhere", breaches: 1 });
  await rows("insert into sagabox.outbox select * from taken");
  expect(await one.runPass()).toEqual([]);
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
  expect(await two.runPass()).toMatchObject([{ kind: "message_lost", ids: ["m-1"] }]);
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
  expect(await new ConservationWatch({ ...options, retentions }).runPass()).toEqual([]);
  await rows("update sagabox.conservation set checked_at = checked_at - interval '3 days'");
  const longer = { deadLetterMs: 5 * DAY_MS, archiveMs: 30 * DAY_MS };
  expect(await new ConservationWatch({ ...options, retentions: longer }).runPass()).toHaveLength(1);
});

test("DESIGN 7C: what is new in known damage is told, beyond the twenty ids that were named before", async () => {
  const { watch, rows, write, observer } = await setup();
  const look = watch("one");
  await write(...Array.from({ length: 30 }, (_, n) => ({ message: { id: `m-${100 + n}`, key: "k" } })));
  await rows("delete from sagabox.outbox where message_id <= 'm-121'");
  await look.runPass();
  await rows("delete from sagabox.outbox where message_id <= 'm-122'");
  await look.runPass();
  await look.runPass();
  expect(observer.of("conservation.broken")).toMatchObject([{ count: 22 }, { count: 1, ids: "m-122" }]);
});

test("DESIGN 7C: a message nobody accounts for is found among thousands that died", async () => {
  const { watch, rows, write, database } = await setup();
  await write(...Array.from({ length: 2_500 }, (_, n) => ({ message: { id: `m-${n}`, key: `k-${n}` } })));
  await rows("delete from sagabox.outbox");
  const [last] = await rows<{ id: string }>(
    "select id from sagabox.message order by lane desc, seq desc limit 1",
  );
  const lost = last?.id ?? "";
  await rows(
    `insert into sagabox.dead_letter
       (origin, message_id, kind, type, schema_version, topic, correlation_id, traceparent, source, priority,
        max_attempts, headers, data, written_at, reason, attempts, error_type, error_message)
     select 'outbox', id, kind, type, schema_version, topic, correlation_id, traceparent, source, priority,
            max_attempts, headers, data, written_at, 'rejected', 1, 'E', 'e' from sagabox.message where id <> $1`,
    [lost],
  );
  expect(await watch("one").runPass()).toMatchObject([{ kind: "message_lost", ids: [lost] }]);
  const { total, skipped } = await verifyConservation(database, "sagabox");
  expect({ ...total, skipped }).toMatchObject({ written: 2_500, dead: 2_499, lost: 1, skipped: 0 });
});

test("DESIGN 7C: where two services keep letters for different times, the shorter one says how far back one can see", async () => {
  const { watch, rows, write } = await setup();
  await write({ message: { id: "m-1", key: "k" } });
  await rows("delete from sagabox.outbox"); // died, and was forgotten by the service that keeps letters for three days
  await rows(
    "update sagabox.message set written_on = current_date - 5, written_at = now() - interval '5 days'",
  );
  const [short, long] = [watch("short", 3), watch("long")];
  expect(await short.runPass()).toEqual([]);
  await short.stop();
  expect(await long.runPass()).toEqual([]);
  await rows("update sagabox.conservation set dead_letter_ms = 14 * 86400000.0"); // as if nobody had said otherwise
  expect(await short.runPass()).toEqual([]); // it has not the turn, and is heard all the same
  expect(await long.runPass()).toEqual([]);
  await rows("update sagabox.conservation set checked_at = checked_at - interval '4 days'");
  expect(await long.runPass()).toMatchObject([{ kind: "message_lost" }]); // kept for longer by now
});
