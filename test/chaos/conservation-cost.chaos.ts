import { expect, test } from "vitest";
import { verifyConservation } from "../../src/admin/index.ts";
import { ensurePartitions } from "../../src/outbox/index.ts";
import { pgDatabase } from "../../src/storage/index.ts";
import { figure, report as figures } from "./chaos-run.ts";
import { temporaryDatabase } from "../support/database.ts";

const MESSAGES = figure(1_000_000);

// Ids of callers, in no order of time: the walk must not depend on them. Batches of 2,000 make a receipt per lane.
const written = `
  insert into sagabox.message (id, written_on, seq, lane, kind, type, schema_version, topic, correlation_id, traceparent,
                               source, priority, max_attempts, headers, data, written_at)
  select md5(n::text), (clock_timestamp() at time zone 'utc')::date, n, n * 7 % 256, 'event', 'order.placed', 1, 'orders',
         md5(n::text), '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'shop', 5, 10, '{}',
         '{"orderId":"' || md5(n::text) || '","total":12.5,"note":"' || repeat('x', 200) || '"}', clock_timestamp()
    from generate_series(1, $1) as n`;
const sent = `
  insert into sagabox.receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs)
  select n * 7 % 256, min(n), max(n), array_agg(n), 'r', clock_timestamp(), (clock_timestamp() at time zone 'utc')::date, '{}'
    from generate_series(1, $1) as n group by n * 7 % 256, n / 2000`;

test(`DESIGN 7C: ${MESSAGES} archived messages are proved window by window; what each costs is reported`, async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  const database = pgDatabase(pool);
  await ensurePartitions(database, "sagabox");
  await pool.query(written, [MESSAGES]);
  await pool.query(sent, [MESSAGES]);
  await pool.query("analyze sagabox.message, sagabox.receipt");
  let windows = 0;
  const report = await verifyConservation(database, "sagabox", { progress: () => (windows += 1) });
  const perMessageUs = (report.durationMs * 1_000) / MESSAGES;
  const perWindowMs = report.durationMs / windows;
  figures("conservation", {
    messages: MESSAGES,
    windows,
    ms: Math.round(report.durationMs),
    "µs a message": perMessageUs.toFixed(1),
    "ms a window": Math.round(perWindowMs),
  });
  expect(report).toMatchObject({ ok: true, skipped: 0, total: { written: MESSAGES, sent: MESSAGES } });
  await pool.query("delete from sagabox.message where seq in (5, $1)", [MESSAGES - 5]);
  const { findings } = await verifyConservation(database, "sagabox");
  expect(findings.map(({ kind, count }) => [kind, count])).toEqual([
    ["message_unarchived", 1],
    ["message_unarchived", 1],
  ]);
}, 300_000);
