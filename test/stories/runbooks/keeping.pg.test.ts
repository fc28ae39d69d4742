import { createBus, event } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../support/database.ts";
import { Runbook } from "../../support/runbook.ts";

vi.setConfig({ testTimeout: 60_000 });

const Placed = event("order.placed", { schema: z.object({ id: z.string() }), key: ({ id }) => id });

async function openService() {
  const { url, pool } = await temporaryDatabase({ migrated: true });
  const bus = createBus({ service: "shop", database: url, log: false });
  onTestFinished(async () => void (await bus.stop()));
  bus.on(Placed, { consumer: "books" }, () => undefined);
  await bus.migrate();
  await bus.run();
  const { id } = await bus.transaction((tx) => tx.publish(Placed, { id: "o-1" }));
  const countHandled = async (): Promise<number | null> =>
    (await pool.query("select from sagabox.consumer_inbox where consumer_name = 'books'")).rowCount;
  await expect.poll(countHandled, { timeout: 20_000 }).toBe(1);
  const rows = async (statements: readonly string[]): Promise<unknown[]> =>
    (await Promise.all(statements.map((sql) => pool.query(sql)))).flatMap(
      ({ rows: found }) => found as unknown[],
    );
  return { url, pool, bus, id, rows };
}

test("G7, archive: a partition that should be gone is found and dropped, and what is young stays", async () => {
  const { url, pool, rows } = await openService();
  await pool.query(`create table sagabox.message_20200101 partition of sagabox.message
                      for values from ('2020-01-01') to ('2020-01-02')`);
  const book = new Runbook("archive", url);
  expect(await book.done("First look")).toContain("would drop message_20200101");
  expect(JSON.stringify(await rows(book.sql("First look")))).toContain("message_20200101");
  const today = new Date().toISOString().slice(0, 10);
  expect(await rows(book.sql("Decide", { day: today }))).toMatchObject([{ event_type: "order.placed" }]);
  expect(await book.done("Fix")).toContain("1 dropped");
  expect(await book.done("Afterwards")).not.toContain("message_20200101");
  expect(JSON.stringify(await rows(book.sql("First look")))).not.toContain("message_20200101");
  expect(book.forgotten).toEqual([]);
});

test("G7, inbox growth: rows that nothing can bring again are forgotten, others stay", async () => {
  const { url, pool, rows } = await openService();
  await pool.query(`insert into sagabox.consumer_inbox (consumer_name, event_id, source_topic, event_type, consumed_at)
                      select 'books', 'old-' || n, 'events.order.placed', 'order.placed', now() - interval '60 days'
                        from generate_series(1, 25) n`);
  const book = new Runbook("inbox-growth", url);
  expect(await book.done("First look")).toMatch(/^books +26\b[^]*\b25\b/m);
  expect(await rows(book.sql("First look"))).toMatchObject([{ published: "1" }]);
  expect(await book.done("Fix")).toContain("25 row(s) forgotten");
  expect(await book.done("Afterwards")).toMatch(/^books +1\b/m);
  expect(book.forgotten).toEqual([]);
});

test("G7, high duplicate rate: the runbook finds who sends everything again", async () => {
  const { url, bus, id, rows } = await openService();
  const hour = 3_600_000;
  await bus.republish({
    from: new Date(Date.now() - hour),
    to: new Date(Date.now() + hour),
    actor: "bob",
    reason: "just trying",
  });
  await expect
    .poll(() => /inbox_duplicates_total\{.*\} 1$/m.test(bus.metrics()), { timeout: 20_000 })
    .toBe(true);
  const book = new Runbook("high-duplicate-rate", url);
  const look = await book.done("First look", { consumer: "books" });
  expect(look).toContain(id);
  expect(look).toMatch(/bob.*outbox\.republish|outbox\.republish.*bob/);
  expect(await rows(book.sql("First look"))).toMatchObject([{ event_id: id }]);
  expect(await book.done("Look at one message", { "message-id": id })).toContain("books");
  expect(await book.done("Fix", { consumer: "books" })).toContain(id);
  await book.done("Afterwards");
  expect(book.forgotten).toEqual([]);
});
