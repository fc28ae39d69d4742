import type pg from "pg";
import { expect, onTestFinished, test, vi } from "vitest";
import { outboxDatabase } from "../../../test/support/relays.ts";
import { checkedTables } from "./tables.ts";
import { verifyConservation } from "./verify.ts";
import { ConservationWatch } from "./watch.ts";

const DAY_MS = 86_400_000;

/** Holds a table as a long change of its shape would. Resolves with what lets it go. */
async function held(pool: pg.Pool, table: string): Promise<() => Promise<void>> {
  const client = await pool.connect();
  await client.query(`begin; lock table sagabox.${table} in access exclusive mode`);
  let open = true;
  const release = async (): Promise<void> => {
    if (!open) return;
    open = false;
    await client.query("rollback");
    client.release();
  };
  onTestFinished(release);
  return release;
}

async function setup() {
  const parts = await outboxDatabase();
  await parts.write({ message: { id: "m-1" } }, { message: { id: "m-2" } });
  const [day] = await parts.rows<{ since: string }>("select written_on::text as since from sagabox.message");
  return { ...parts, since: day?.since ?? "" };
}

test("DESIGN 7C: what could not be looked at is not called kept", async () => {
  const { pool, database, since } = await setup();
  const release = await held(pool, "receipt");
  const seen = await verifyConservation(database, "sagabox", { since });
  expect(seen).toMatchObject({ ok: false, verdict: "incomplete", finished: true, skipped: 1, findings: [] });
  expect(seen.total.written).toBe(0);
  await release();
  expect(await verifyConservation(database, "sagabox")).toMatchObject({
    ok: true,
    verdict: "kept",
    skipped: 0,
  });
});

test.each([
  ["receipt", 2],
  ["queue", 4],
])(
  "DESIGN 7C: what was busy for a moment is looked at again, so that the proof is whole: %s",
  async (table, again) => {
    const { pool, database, since } = await setup();
    const release = await held(pool, table);
    const begin = database.begin.bind(database);
    let looks = 0;
    vi.spyOn(database, "begin").mockImplementation(async (options) => {
      looks += 1;
      if (looks === again) await release();
      return begin(options);
    });
    const seen = await verifyConservation(database, "sagabox", { since });
    expect(seen).toMatchObject({ ok: true, verdict: "kept", skipped: 0, total: { written: 2, waiting: 2 } });
    expect(looks).toBe(1 + checkedTables.length + 1 + 1);
  },
);

test("DESIGN 7C: damage is told as damage also where something else could not be looked at", async () => {
  const { pool, rows, database } = await setup();
  await rows("delete from sagabox.outbox where message_id = 'm-2'");
  const release = await held(pool, "scheduled");
  const seen = await verifyConservation(database, "sagabox");
  expect(seen).toMatchObject({ ok: false, verdict: "broken", skipped: 1, total: { lost: 1 } });
  await release();
});

test("DESIGN 7C: whoever stops it is told that it did not finish", async () => {
  const { database, since } = await setup();
  const stop = new AbortController();
  const options = { since, signal: stop.signal, progress: () => stop.abort() };
  const seen = await verifyConservation(database, "sagabox", options);
  expect(seen).toMatchObject({ ok: false, verdict: "incomplete", finished: false, rows: 0 });
  expect(seen.total.written).toBe(2);
});

test("DESIGN 7C: more than one question can ask for is asked in pieces, and all of it is counted", async () => {
  const { rows, write, database } = await setup();
  await write(...Array.from({ length: 2_500 }, (_, n) => ({ message: { id: `x-${n}`, key: `k-${n}` } })));
  await rows("delete from sagabox.outbox where message_id like 'x-%'");
  const { total, skipped } = await verifyConservation(database, "sagabox");
  expect({ ...total, skipped }).toMatchObject({ written: 2_502, waiting: 2, lost: 2_500, skipped: 0 });
});

test("DESIGN 7C: the watch says so too, remembers the windows, and is whole again when it has seen them", async () => {
  const { pool, rows, database, observer } = await setup();
  const watch = new ConservationWatch({
    database,
    schema: "sagabox",
    worker: "one",
    observer,
    everyMs: 1_000,
    retentions: { deadLetterMs: 14 * DAY_MS, archiveMs: 30 * DAY_MS },
  });
  const missed = async () =>
    (
      await rows<{ n: number }>("select json_array_length(state -> 'missed') as n from sagabox.conservation")
    )[0]?.n;
  const release = await held(pool, "receipt");
  await watch.runPass();
  expect(observer.of("conservation.checked").at(-1)).toMatchObject({ outcome: "incomplete", messages: 0 });
  const before = await missed();
  expect(before).toBeGreaterThan(5);
  await release();
  await watch.runPass();
  expect(observer.of("conservation.checked").at(-1)).toMatchObject({ outcome: "incomplete", skipped: 0 });
  expect(await missed()).toBeLessThan(before ?? 0);
  while ((await missed()) !== 0) await watch.runPass();
  expect(observer.of("conservation.checked").at(-1)).toMatchObject({ outcome: "kept", skipped: 0 });
});

test("DESIGN 7C: a look that is stopped forgets neither what is wrong nor what it owes", async () => {
  const { rows, database, observer } = await setup();
  const retentions = { deadLetterMs: 14 * DAY_MS, archiveMs: 30 * DAY_MS };
  const options = { database, schema: "sagabox", worker: "one", observer, everyMs: 1_000, retentions };
  await rows("delete from sagabox.outbox where message_id = 'm-2'");
  const watch = new ConservationWatch(options);
  expect(await watch.runPass()).toHaveLength(1);
  expect(await watch.runPass(AbortSignal.abort())).toMatchObject([{ kind: "message_lost", ids: ["m-2"] }]);
});
