import { expect, test } from "vitest";
import type { Message } from "../../src/message/index.ts";
import type { Outgoing } from "../../src/outbox/index.ts";
import type { OwnedTransaction } from "../../src/storage/index.ts";
import { outgoing, relays, until, type Relays } from "../support/relays.ts";
import { seededRandom } from "../support/random-data.ts";

const KEYS = 50;
const WRITERS = 8;

interface Load {
  readonly messages: number;
  readonly seed: number;
  /** Writes the messages and ends the transaction; false when it rolled back. */
  readonly write: (
    harness: Relays,
    tx: OwnedTransaction,
    messages: readonly Outgoing[],
    random: () => number,
  ) => Promise<boolean>;
}

/** Transactions that lock their aggregates, number their messages under the lock, and end out of order. */
async function writers(harness: Relays, { messages, seed, write }: Load): Promise<string[]> {
  await harness.pool.query(
    `create table aggregate (key text primary key, kseq int not null default 0);
     insert into aggregate select 'k' || n from generate_series(0, ${KEYS - 1}) as n`,
  );
  const written: string[] = [];
  const one = async (n: number): Promise<void> => {
    const random = seededRandom(seed * 1_000 + n);
    while (written.length < messages) {
      const keys = [
        ...new Set(
          Array.from({ length: 1 + Math.floor(random() * 3) }, () => `k${Math.floor(random() * KEYS)}`),
        ),
      ].toSorted();
      written.push(...(await transaction(harness, keys, random, write)));
    }
  };
  await Promise.all(Array.from({ length: WRITERS }, (_, n) => one(n)));
  return written;
}

async function transaction(
  harness: Relays,
  keys: string[],
  random: () => number,
  write: Load["write"],
): Promise<string[]> {
  const tx = await harness.database.begin();
  const messages = [];
  for (const key of keys) {
    const { rows } = await tx.query<{ kseq: number }>(
      "update aggregate set kseq = kseq + 1 where key = $1 returning kseq",
      [key],
    );
    const kseq = rows[0]?.kseq ?? 0;
    messages.push(outgoing({ id: `${key}#${kseq}`, key, data: JSON.stringify({ kseq }) }));
  }
  const committed = await write(harness, tx, messages, random);
  return committed ? messages.map(({ message }) => message.id) : [];
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function assertInOrder(published: readonly Message[], written: readonly string[]): void {
  const seen = new Map<string, number>();
  const inversions: string[] = [];
  for (const { id, key, data } of published) {
    const { kseq } = JSON.parse(data) as { kseq: number };
    if ((seen.get(key ?? "") ?? 0) + 1 !== kseq) inversions.push(id);
    seen.set(key ?? "", kseq);
  }
  const arrived = published.map(({ id }) => id);
  expect(inversions).toEqual([]);
  expect(new Set(arrived).size).toBe(arrived.length);
  expect(arrived.toSorted()).toEqual(written.toSorted());
}

// A seq is drawn early and its transaction takes long or rolls back: seqs commit far out of order.
const slowly: Load["write"] = async (harness, tx, messages, random) => {
  await harness.writer.write(tx, messages);
  if (random() < 0.3) await pause(random() * 25);
  const fails = random() < 0.05;
  await (fails ? tx.rollback() : tx.commit());
  return !fails;
};

test(
  "rule 6: writers that commit out of order lose nothing and invert nothing, beside an old snapshot and a long writer",
  { timeout: 120_000 },
  async () => {
    const harness = await relays({ poolSize: 60 });
    const snapshot = await harness.database.begin({ isolation: "repeatable read" });
    await snapshot.query("select 1 from sagabox.outbox");
    const long = await harness.database.begin();
    await harness.writer.write(long, [outgoing({ id: "long#1", key: "long", data: '{"kseq":1}' })]);
    for (const worker of ["r1", "r2"]) {
      await harness.relay({ worker, batchSize: 40, leaseMs: 1_000, database: harness.fresh() }).start();
    }
    const writing = writers(harness, { messages: 5_000, seed: 1, write: slowly });
    await until(() => harness.transport.published.length > 2_000, 60_000);
    await long.commit();
    const written = [...(await writing), "long#1"];
    await until(async () => (await harness.waiting()) === 0, 60_000);
    await snapshot.rollback();
    assertInOrder(harness.transport.published, written);
  },
);

test(
  "rules 7 and 9: optimistic senders and relays side by side, no faults: each message once, in order",
  { timeout: 120_000 },
  async () => {
    const harness = await relays({ poolSize: 60 });
    const senders = [
      harness.optimistic({ worker: "s1" }),
      harness.optimistic({ worker: "s2", database: harness.fresh() }),
    ];
    for (const worker of ["r1", "r2"]) {
      await harness.relay({ worker, batchSize: 40, leaseMs: 1_000, database: harness.fresh() }).start();
    }
    harness.transport.before = () => pause(2);
    const written = await writers(harness, {
      messages: 2_000,
      seed: 2,
      write: async (_, tx, messages, random) => {
        const own = senders[random() < 0.5 ? 0 : 1]?.scope(tx);
        for (const message of messages) await own?.add(message);
        own?.handleCommit(await tx.commit(own.lastStatements()));
        return true;
      },
    });
    await until(async () => (await harness.waiting()) === 0, 60_000);
    assertInOrder(harness.transport.published, written);
    expect(harness.observer.of("optimistic.succeeded").length).toBeGreaterThan(100);
  },
);

test(
  "rule 4: relays that come and go while keys fail now and then: each message once, in order",
  { timeout: 120_000 },
  async () => {
    const harness = await relays({ poolSize: 60 });
    const random = seededRandom(3);
    harness.transport.answer = () => (random() < 0.03 ? "rejected" : "published");
    const start = async (worker: string) => {
      const relay = harness.relay({
        worker,
        batchSize: 40,
        leaseMs: 1_000,
        retry: { maxAttempts: 50, firstDelay: 10, maxDelay: 30 },
        database: harness.fresh(),
      });
      await relay.start();
      return relay;
    };
    await start("stays");
    const writing = writers(harness, { messages: 2_000, seed: 4, write: slowly });
    for (let turn = 0; turn < 5; turn++) {
      const guest = await start(`guest${turn}`);
      await until(() => guest.ownedLanes > 50);
      await until(() => harness.transport.published.length >= Math.min(1_900, (turn + 1) * 300), 60_000);
      await guest.stop();
    }
    const written = await writing;
    await until(async () => (await harness.waiting()) === 0, 60_000);
    assertInOrder(harness.transport.published, written);
  },
);
