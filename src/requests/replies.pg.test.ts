import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { RecordingObserver } from "../../test/support/recording-observer.ts";
import { until } from "../../test/support/relays.ts";
import { pgDatabase } from "../storage/index.ts";
import { forgetReplies, parseReplyNotice, Replies, replyNotice } from "./replies.ts";

async function setup(pollMs = 20) {
  const { pool } = await temporaryDatabase({ migrated: true });
  const database = pgDatabase(pool);
  const observer = new RecordingObserver();
  const replies = new Replies({ database, schema: "sagabox", observer, pollMs });
  onTestFinished(() => replies.stop());
  await replies.start();
  const write = (id: string, body: object, age = "0") =>
    pool.query(
      `insert into sagabox.reply (request_id, outcome, body, arrived_at)
       values ($1, $2, $3, clock_timestamp() - $4::interval)`,
      [id, "reason" in body ? "failed" : "done", JSON.stringify({ requestId: id, ...body }), age],
    );
  return { pool, database, replies, write };
}

test("B8: a reply without a notification is found by polling", async () => {
  const { replies, write } = await setup();
  const [a, b] = [replies.expect("a"), replies.expect("b")];
  await write("a", { outcome: "done", reply: { n: 1 } });
  await write("b", { outcome: "failed", reason: "exhausted", error: "no" });
  expect(await a.answer).toEqual({ outcome: "done", reply: { n: 1 } });
  expect(await b.answer).toMatchObject({ outcome: "failed", reason: "exhausted", error: "no" });
  expect(replies.size).toBe(0);
});

test("B8: a notified reply is read at once, for all requests that wait for it", async () => {
  const { replies, write } = await setup(60_000);
  const waiting = [replies.expect("a"), replies.expect("a"), replies.expect("other")];
  await write("a", { outcome: "done" });
  replies.wake(parseReplyNotice(replyNotice("a")));
  expect(await Promise.all(waiting.slice(0, 2).map(({ answer }) => answer))).toEqual([
    { outcome: "done" },
    { outcome: "done" },
  ]);
  expect(replies.size).toBe(1);
  waiting[2]?.forget();
  expect(replies.size).toBe(0);
});

test("B8: a forgotten request is not awaited, and nothing polls without requests", async () => {
  const { replies, pool } = await setup();
  const looks = async (): Promise<number> => {
    const sql =
      "select coalesce(sum(seq_scan + idx_scan), 0)::int as n from pg_stat_user_tables where relname = 'reply'";
    return (await pool.query<{ n: number }>(sql)).rows[0]?.n ?? 0;
  };
  replies.expect("a").forget();
  replies.wake("a");
  replies.wake();
  const before = await looks();
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect([replies.size, (await looks()) - before]).toEqual([0, 0]);
});

test("B8: polling continues after a database failure", async () => {
  const { replies, write, pool } = await setup();
  await pool.query("alter table sagabox.reply rename to away");
  const { answer } = replies.expect("a");
  await new Promise((resolve) => setTimeout(resolve, 50));
  await pool.query("alter table sagabox.away rename to reply");
  await write("a", { outcome: "done" });
  expect(await answer).toEqual({ outcome: "done" });
});

test("B8: requests that wait when the bus stops are rejected", async () => {
  const { replies } = await setup();
  const { answer } = replies.expect("a");
  replies.giveUp(new Error("stopped"));
  await expect(answer).rejects.toThrow("stopped");
});

test("B8: old replies are forgotten, young ones are kept", async () => {
  const { database, pool, write } = await setup();
  await write("old", { outcome: "done" }, "2 days");
  await write("young", { outcome: "done" });
  expect(await forgetReplies(database, "sagabox", { olderThanMs: 86_400_000 })).toBe(1);
  expect((await pool.query("select request_id from sagabox.reply")).rows).toEqual([{ request_id: "young" }]);
  await until(async () => (await forgetReplies(database, "sagabox", { olderThanMs: 0 })) === 1);
});

test("other words on the channel are not taken for replies", () => {
  expect(["1,2,3", "*", "!4", ""].map(parseReplyNotice)).toEqual(Array(4).fill(undefined));
});
