import { expect, onTestFinished, test } from "vitest";
import { outgoing, relays, until } from "../../test/support/relays.ts";
import { decodeHint, WakeUp } from "./wake-up.ts";

async function setup(local: (lanes: readonly number[]) => boolean = () => false) {
  const harness = await relays();
  const heard: string[] = [];
  const ear = await harness.database.session("ear");
  await ear.listen("hints", ({ payload }) => heard.push(payload));
  const wakeUp = new WakeUp({ database: harness.database, channel: "hints", local, owns: () => false });
  onTestFinished(async () => {
    await wakeUp.close();
    ear.release();
  });
  /** Sends a notification of its own and waits for it: everything sent before has arrived then. */
  const listened = async (): Promise<void> => {
    await until(
      async () =>
        (
          await harness.rows(
            "select 1 from pg_stat_activity where state = 'active' and query ilike '%notify%' and pid <> pg_backend_pid()",
          )
        ).length === 0,
    );
    await harness.pool.query("select pg_notify('hints', 'end')");
    await until(() => heard.includes("end"));
  };
  return { ...harness, wakeUp, heard, listened };
}

test("A10, rule 11: hints in quick succession are merged into one notification that names each lane once", async () => {
  const { wakeUp, heard, database } = await setup();
  wakeUp.notifyNow([1]);
  for (let n = 0; n < 500; n++) wakeUp.notifyNow([n % 20]);
  await until(() => heard.length === 2);
  // Each notification uses its own connection, so either may arrive first.
  const [first, rest] = heard.toSorted((a, b) => a.length - b.length);
  expect(first).toBe("1");
  expect(decodeHint(rest ?? "").lanes?.toSorted((a, b) => a - b)).toEqual(
    Array.from({ length: 20 }, (_, n) => n),
  );
  expect(database.ran.filter(({ name }) => name.includes("notify"))).toHaveLength(2);
});

test("rule 11: lanes owned by the relay of this process cause no notification", async () => {
  const asked: (readonly number[])[] = [];
  const { wakeUp, heard, listened } = await setup((lanes) => asked.push(lanes) > 0);
  wakeUp.notifyNow([3, 3, 4]);
  await listened();
  expect([asked, heard]).toEqual([[[3, 4]], ["end"]]);
});

test("A10, rule 11: for a caller's own transaction the hint is repeated at growing intervals", async () => {
  const { wakeUp, heard, database } = await setup();
  const notified = (): number => database.ran.filter(({ name }) => name.includes("notify")).length;
  const beganMs = performance.now();
  wakeUp.notifySoon([5]);
  wakeUp.notifySoon([6]);
  // On a busy machine several hints may be merged, so their exact number is not asserted.
  await until(() => performance.now() - beganMs > 300 && notified() > 1 && heard.length === notified());
  expect(heard.length).toBeLessThanOrEqual(5);
  expect(heard.map((payload) => decodeHint(payload).lanes?.toSorted())).toEqual(heard.map(() => [5, 6]));
});

test("A10, rule 11: with a pg client the hint is sent when the caller's transaction ends, and not before", async () => {
  const { wakeUp, heard, pool } = await setup();
  const client = await pool.connect();
  await client.query("begin");
  wakeUp.notifySoon([5], client);
  wakeUp.notifySoon([6], client);
  await client.query("select pg_sleep(0.05)");
  expect(heard).toEqual([]);
  await client.query("commit");
  client.release();
  await until(() => heard.length > 0);
  expect(heard).toEqual(["5,6"]);
});

test("A10, rule 11: a hint may be sent with the COMMIT, and the next ones are merged", async () => {
  const { wakeUp, heard, database } = await setup();
  const tx = await database.begin();
  await tx.query("select 1");
  const hint = wakeUp.hintForCommit([3, 3, 4]);
  expect(wakeUp.hintForCommit([5])).toBeUndefined();
  wakeUp.notifyNow([5]);
  await tx.commit([], hint);
  wakeUp.notifyNow([3, 4], true);
  await until(() => heard.length === 2);
  expect(heard.toSorted()).toEqual(["3,4", "5"]);
  expect(database.ran.filter(({ name }) => name.includes("notify"))).toHaveLength(1);
});

test("rule 11: no hint is sent if no other worker needs it, or after close", async () => {
  const { wakeUp, database } = await setup();
  const alone = new WakeUp({ database, channel: "hints", local: () => true, owns: () => true });
  expect([wakeUp.hintForCommit([]), alone.hintForCommit([1])]).toEqual([undefined, undefined]);
  await wakeUp.close();
  expect(wakeUp.hintForCommit([1])).toBeUndefined();
});

test("rule 11: a closed WakeUp sends nothing", async () => {
  const { wakeUp, heard, listened } = await setup();
  wakeUp.notifySoon([5]);
  await wakeUp.close();
  wakeUp.notifyNow([6]);
  await new Promise((resolve) => setTimeout(resolve, 30));
  await listened();
  expect(heard).toEqual(["end"]);
});

test("rule 11: rows changed by an operator are announced at once", async () => {
  const { wakeUp, heard } = await setup();
  wakeUp.notifyChanged([7]);
  await until(() => heard.length === 1);
  expect(decodeHint(heard[0] ?? "")).toEqual({ lanes: [7], changed: true });
});

test("A10, rule 11: a business transaction that publishes sends no notification itself", async () => {
  const { publish, optimistic, heard, listened } = await setup();
  await publish(outgoing({ key: "k" }), outgoing());
  await optimistic().send(outgoing());
  await listened();
  expect(heard).toEqual(["end"]);
});

test("A10, rule 11: a hint makes an idle relay read at once; without one it reads within the poll interval", async () => {
  const { publish, relay, transport, database } = await setup();
  const lazy = relay({ pollInterval: 60_000 });
  await lazy.start();
  await until(() => lazy.ownedLanes === 256);
  // Empty reads are followed by growing pauses, so after a pause of a second the next one is longer still.
  let looks = 0;
  let lookedMs = performance.now();
  await until(() => {
    if (database.count("sagabox.outbox.fetch") === looks) return false;
    const awayMs = performance.now() - lookedMs;
    looks = database.count("sagabox.outbox.fetch");
    lookedMs = performance.now();
    return looks > 3 && awayMs > 1_000;
  });
  const message = outgoing({ id: "hinted" });
  await publish(message);
  expect(lazy.hint([message.lane])).toBe(true);
  await until(() => transport.ids.includes("hinted"), 1_000);
  await lazy.stop();
  await relay({ pollInterval: 100 }).start();
  await publish(outgoing({ id: "polled" }));
  await until(() => transport.ids.includes("polled"), 2_000);
});
