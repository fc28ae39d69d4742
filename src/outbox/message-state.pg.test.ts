import { expect, test } from "vitest";
import { outboxDatabase } from "../../test/support/relays.ts";
import { moves } from "./message-state.ts";

async function setup() {
  const { rows, write, pool } = await outboxDatabase();
  await write({ message: { id: "m", key: "k" } });
  /** Returns undefined if the database allowed the update, else its error message. */
  const update = async (change: string): Promise<string | undefined> => {
    try {
      await rows(`update sagabox.outbox set ${change}`);
      return undefined;
    } catch (error) {
      expect(error).toMatchObject({ code: "23514" });
      return (error as Error).message;
    }
  };
  return { rows, update, pool };
}

test("A5: the database has the moves of the code", async () => {
  const { rows } = await setup();
  const stored = await rows(`select name, from_status as "from", to_status as "to" from sagabox.outbox_move`);
  const inCode = moves.map(({ name, from, to }) => ({ name, from, to }));
  const sorted = (list: readonly unknown[]): string[] => list.map((move) => JSON.stringify(move)).toSorted();
  expect(sorted(stored)).toEqual(sorted(inCode));
});

test.each([
  ["attempts that fall", "attempts = attempts - 1"],
  ["attempts that jump", "attempts = attempts + 2"],
  ["another message", "message_id = 'other'"],
  ["another topic", "topic = 'events.other'"],
  ["another position in its stream", "seq = seq + 1000"],
  ["another stream", "stream = 7"],
  ["a new lease", "lease_until = clock_timestamp() + interval '1 minute'"],
  ["a later time without a failure", "due_at = due_at + interval '1 hour'"],
  ["an older day", "written_on = written_on - 1"],
  ["a newer day together with another change", "written_on = written_on + 1, attempts = attempts + 1"],
])("A5: the database refuses %s", async (_, change) => {
  const { rows, update } = await setup();
  await rows("update sagabox.outbox set attempts = attempts + 1, due_at = clock_timestamp()");
  expect(await update(change)).toContain("illegal move of outbox row");
});

test("A5: the database allows failing, holding the key, a replay, a newer partition and an earlier expiry", async () => {
  const { update } = await setup();
  const legal = [
    "attempts = attempts + 1, last_error = 'no', due_at = clock_timestamp() + interval '2 seconds'",
    "expires_at = clock_timestamp() + interval '1 hour'",
    "due_at = 'infinity'",
    "due_at = clock_timestamp(), attempts = 0",
    "written_on = written_on + 1",
    "expires_at = expires_at - interval '1 second'",
  ];
  for (const change of legal) expect(await update(change), change).toBeUndefined();
});

test.each([
  ["a retry of a message that never failed", [], "due_at = due_at - interval '1 second'"],
  [
    "a failure of a dead letter",
    ["due_at = 'infinity'"],
    "due_at = clock_timestamp(), attempts = attempts + 1",
  ],
  ["burying a dead letter again", ["due_at = 'infinity'"], "last_error = 'other'"],
])("A5: the database refuses %s, whose change is legal from another state", async (_, before, change) => {
  const { update } = await setup();
  for (const first of before) expect(await update(first), first).toBeUndefined();
  expect(await update(change)).toContain("illegal move of outbox row");
});

test("A5: the database refuses a dead letter by exhaustion while attempts are left", async () => {
  const { rows } = await setup();
  const bury = (reason: string, attempts: number) =>
    rows(
      `insert into sagabox.dead_letter
         (origin, message_id, kind, type, schema_version, topic, correlation_id, traceparent, source, priority,
          max_attempts, headers, data, written_at, reason, attempts, error_type, error_message)
       select 'outbox', id, kind, type, schema_version, topic, correlation_id, traceparent, source, priority,
              max_attempts, headers, data, written_at, $1, $2, 'Error', 'no' from sagabox.message`,
      [reason, attempts],
    );
  await expect(bury("exhausted", 9)).rejects.toMatchObject({ code: "23514" });
  await expect(bury("exhausted", 10)).resolves.toEqual([]);
  await expect(bury("rejected", 0)).resolves.toEqual([]);
  await expect(bury("tired", 10)).rejects.toMatchObject({ code: "23514" });
});

// Both workers believe that they may settle; the second finds no row.
test("H4, test_concurrent_transitions: only one of two concurrent settles of a message succeeds", async () => {
  const { rows, pool } = await setup();
  const [one, other] = [await pool.connect(), await pool.connect()];
  try {
    await one.query("begin");
    await one.query("delete from sagabox.outbox");
    const late = other.query("update sagabox.outbox set attempts = attempts + 1");
    await one.query("commit");
    expect((await late).rowCount).toBe(0);
  } finally {
    one.release();
    other.release();
  }
  expect(await rows("select status from sagabox.outbox_events")).toEqual([{ status: "sent" }]);
});

test("A5: the status in the view follows the row", async () => {
  const { rows, update } = await setup();
  const status = async (): Promise<unknown> =>
    (await rows("select status from sagabox.outbox_events"))[0]?.["status"];
  expect(await status()).toBe("pending");
  await rows(
    `insert into sagabox.member (id, scope, worker, lease_until) values ('w', 0, 'w', clock_timestamp() + interval '1 minute')`,
  );
  await rows("update sagabox.relay_lane set owner = 'w', token = 't', leased_at = clock_timestamp()");
  expect(await status()).toBe("claimed");
  await update("attempts = attempts + 1, due_at = clock_timestamp() + interval '1 minute'");
  expect(await status()).toBe("failed");
  await rows("delete from sagabox.outbox");
  expect(await status()).toBe("sent");
});
