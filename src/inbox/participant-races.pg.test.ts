import { expect, test } from "vitest";
import { refuse } from "../errors/index.ts";
import { aCommand, participants, Release, Reserve } from "../../test/support/consumers.ts";
import { until } from "../../test/support/relays.ts";
import type { Message } from "../message/index.ts";
import type { Sql } from "../storage/index.ts";
import { receiveOnce } from "./receive-once.ts";
import { receiveReferring } from "./earlier-commands.ts";

function gate() {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { open: () => open(), opened };
}

async function setup() {
  const harness = await participants();
  const waiting = `select 1 from pg_locks as waits join pg_stat_activity as session using (pid)
                    where not waits.granted and session.datname = current_database()`;
  const blocked = (sessions = 1) => until(async () => (await harness.rows(waiting)).length >= sessions);
  const receipt = (id: string, type: string) => ({
    consumer: "stock",
    id,
    topic: `commands.${type}`,
    type,
    payload: null,
    expiresAt: null,
    deadlineMs: 10_000,
  });
  const write = (tx: Sql, what: string) =>
    tx
      .query("insert into effect (consumer, id, note) values ('stock', 'x', $1)", [what])
      .then(() => undefined);
  const notes = async () => (await harness.effects()).map(({ note }) => note);
  return { ...harness, blocked, receipt, write, notes };
}

const earlier = {
  undoes: { type: Reserve.name, topic: "commands.stock.reserve", ids: ["d1"] },
  supersedes: undefined,
};

test("an undo waits for its running command, and then undoes it", async () => {
  const { engine, receipt, write, blocked, notes } = await setup();
  const [begun, hold] = [gate(), gate()];
  const doing = receiveOnce(engine, receipt("d1", Reserve.name), async ({ tx }) => {
    await write(tx, "do");
    begun.open();
    await hold.opened;
  });
  await begun.opened;
  const undoing = receiveReferring(engine, receipt("u1", Release.name), {
    earlier,
    handle: ({ tx }) => write(tx, "undo"),
    answer: () => Promise.resolve(),
  });
  await blocked();
  hold.open();
  expect([(await doing).kind, (await undoing).kind]).toEqual(["processed", "processed"]);
  expect(await notes()).toEqual(["do", "undo"]);
});

test("an undo that waits for a failing command settles it: the retry is a duplicate", async () => {
  const { engine, receipt, write, blocked, notes } = await setup();
  const [begun, hold] = [gate(), gate()];
  const doing = receiveOnce(engine, receipt("d1", Reserve.name), async ({ tx }) => {
    await write(tx, "do");
    begun.open();
    await hold.opened;
    throw new Error("the shelf broke");
  });
  doing.catch(() => undefined);
  await begun.opened;
  const undoing = receiveReferring(engine, receipt("u1", Release.name), {
    earlier,
    handle: ({ tx }) => write(tx, "undo"),
    answer: () => Promise.resolve(),
  });
  await blocked();
  hold.open();
  await expect(doing).rejects.toThrow("the shelf broke");
  expect(await undoing).toEqual({ kind: "skipped", reason: "nothing_to_undo" });
  const again = await receiveOnce(engine, receipt("d1", Reserve.name), ({ tx }) => write(tx, "do"));
  expect(again.kind).toBe("duplicate");
  expect(await notes()).toEqual([]);
});

test("a command that arrives during its undo waits, and is a duplicate", async () => {
  const { engine, receipt, write, blocked, notes } = await setup();
  const [begun, hold] = [gate(), gate()];
  const undoing = receiveReferring(engine, receipt("u1", Release.name), {
    earlier,
    handle: ({ tx }) => write(tx, "undo"),
    answer: async () => {
      begun.open();
      await hold.opened;
    },
  });
  await begun.opened;
  const doing = receiveOnce(engine, receipt("d1", Reserve.name), ({ tx }) => write(tx, "do"));
  await blocked();
  hold.open();
  expect(await undoing).toEqual({ kind: "skipped", reason: "nothing_to_undo" });
  expect((await doing).kind).toBe("duplicate");
  expect(await notes()).toEqual([]);
});

test("of two concurrent undos one runs, and the other waits and finds the command undone", async () => {
  const { engine, receipt, write, blocked, notes } = await setup();
  await receiveOnce(engine, receipt("d1", Reserve.name), ({ tx }) => write(tx, "do"));
  const [begun, hold] = [gate(), gate()];
  const answer = () => Promise.resolve();
  const first = receiveReferring(engine, receipt("u1", Release.name), {
    earlier,
    answer,
    handle: async ({ tx }) => {
      await write(tx, "undo");
      begun.open();
      await hold.opened;
    },
  });
  await begun.opened;
  const second = receiveReferring(engine, receipt("u2", Release.name), {
    earlier,
    answer,
    handle: ({ tx }) => write(tx, "undo"),
  });
  await blocked();
  hold.open();
  expect((await first).kind).toBe("processed");
  expect(await second).toEqual({ kind: "skipped", reason: "already_undone" });
  expect(await notes()).toEqual(["do", "undo"]);
});

test("an undo and a copy of its command wait for each other without a deadlock", async () => {
  const { engine, receipt, write, blocked, notes } = await setup();
  const [begun, hold] = [gate(), gate()];
  const doing = receiveOnce(engine, receipt("d15", Reserve.name), async () => {
    begun.open();
    await hold.opened;
    throw new Error("the shelf broke");
  });
  doing.catch(() => undefined);
  await begun.opened;
  const answer = () => Promise.resolve();
  const undoing = receiveReferring(engine, receipt("u1", Release.name), {
    earlier: { undoes: { ...earlier.undoes, ids: ["d2", "d15", "d1"] }, supersedes: undefined },
    handle: ({ tx }) => write(tx, "undo"),
    answer,
  });
  await blocked(); // it has d1, waits for d15, and still needs d2
  const copying = receiveReferring(engine, receipt("d2", Reserve.name), {
    earlier: { undoes: undefined, supersedes: earlier.undoes },
    handle: ({ tx }) => write(tx, "do"),
    answer,
  });
  await blocked(2);
  hold.open();
  expect((await Promise.all([undoing, copying])).map(({ kind }) => kind)).toEqual(["skipped", "duplicate"]);
  expect(await notes()).toEqual([]);
});

test("a refusal does not hide the effect of an earlier copy", async () => {
  const harness = await setup();
  const { registry, blocked, settled, replyTo, observer } = harness;
  registry.on(Reserve, { consumer: "stock" }, async ({ id }, { tx }) => {
    if (id === "d1") {
      await harness.write(tx, "do");
      return { place: "A1" };
    }
    await harness.publish(aCommand(Reserve, "d1"));
    await blocked(); // it waits for us, and gets its turn as soon as this transaction is rolled back
    throw refuse("sold out");
  });
  await harness.start();
  await settled(aCommand(Reserve, "d2", { supersedes: ["d1"] }));
  const [reply] = replyTo("d2");
  const done = (await harness.notes()).length === 1;
  expect(reply).toMatchObject(done ? { outcome: "done", reply: { place: "A1" } } : { reason: "refused" });
  expect(observer.of("consumer.duplicate")).toHaveLength(done ? 0 : 1);
});

test("in any order, a command and its copies are executed at most once and undone exactly as often", async () => {
  const harness = await setup();
  const { registry, pool, settled, observer, deadLetters } = harness;
  await pool.query("create table ledger (item text, what text)");
  const write = "insert into ledger values ($1, $2)";
  registry.on(Reserve, { consumer: "stock", concurrency: 12 }, async ({ id }, { tx }) => {
    await tx.query(write, [id.split(":")[0], "do"]);
    return { place: id };
  });
  registry.on(Release, { consumer: "stock" }, async ({ id }, { tx }) => {
    await tx.query(write, [id.split(":")[0], "undo"]);
  });
  await harness.start();
  const items = Array.from({ length: 120 }, (_, n) => `i${n}`);
  const ofItem = (item: string): Message[] => {
    const [d1, d2, d3] = ["d1", "d2", "d3"].map((name) => `${item}:${name}`) as [string, string, string];
    const undoes = [d3, d1, d2];
    return [
      aCommand(Reserve, d1),
      aCommand(Reserve, d2, { supersedes: [d1] }),
      aCommand(Reserve, d3, { supersedes: [d2, d1] }),
      aCommand(Release, `${item}:u1`, { undoes }),
      aCommand(Release, `${item}:u2`, { undoes }),
    ];
  };
  // Each item has another order. Messages that are close in the list run concurrently.
  const messages = items.flatMap((item, n) => permuted(ofItem(item), n));
  await settled(...messages, ...messages.slice(0, 50));
  const { rows } = await pool.query<{ item: string; done: number; undone: number }>(
    `select item, count(*) filter (where what = 'do')::int as done, count(*) filter (where what = 'undo')::int as undone
       from ledger group by item`,
  );
  expect(rows.filter(({ done, undone }) => done !== 1 || undone !== 1)).toEqual([]);
  expect(rows.length).toBeGreaterThan(10);
  expect(rows.length).toBeLessThan(items.length);
  expect(observer.of("consumer.retried")).toEqual([]); // no deadlock
  expect(await deadLetters()).toEqual([]);
});

/** The n-th permutation. */
function permuted<T>(list: readonly T[], n: number): T[] {
  const rest = [...list];
  let left = n;
  return list.map((_, index) => {
    const size = list.length - index;
    const [taken] = rest.splice(left % size, 1) as [T];
    left = Math.floor(left / size);
    return taken;
  });
}
