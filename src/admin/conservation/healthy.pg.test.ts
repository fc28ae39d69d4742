import { createBus, event, type Bus, type BusOptions } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { RecordingObserver } from "../../../test/support/recording-observer.ts";
import { pgDatabase } from "../../storage/index.ts";
import { History } from "../../outbox/index.ts";
import { ConservationWatch } from "./watch.ts";
import { verifyConservation } from "./verify.ts";

const TRANSACTIONS = 80;
const schema = z.object({ n: z.number() });
const Placed = event("busy.placed", { schema, key: ({ n }) => `k-${n % 20}` });
const Loose = event("busy.loose", { schema });
const Brief = event("busy.brief", { schema, ttl: 1 });

async function setup() {
  const { pool, url } = await temporaryDatabase({ max: 40, leakGuard: false });
  const open = (options: Partial<BusOptions> = {}): Bus => {
    const bus = createBus({ service: "busy", database: url, log: false, ...options });
    onTestFinished(async () => void (await bus.stop()));
    return bus;
  };
  const database = pgDatabase(pool);
  const observer = new RecordingObserver();
  return { pool, database, open, observer };
}

/** Fails one in seven times, and for ever with every fiftieth. */
function consume(bus: Bus): Bus {
  let calls = 0;
  const retry = { maxAttempts: 3, firstDelay: 5 } as const;
  const handle = ({ data }: { data: { n: number } }): void => {
    calls += 1;
    if (data.n % 50 === 0 || calls % 7 === 0) throw new Error("not now");
  };
  bus.on(Placed, { consumer: "books", retry }, handle);
  bus.on(Loose, { consumer: "books", retry }, handle);
  bus.on(Loose, { consumer: "mail" }, () => undefined);
  return bus;
}

test("DESIGN 7C: a healthy system under load is never accused, whatever happens to its messages", async () => {
  const { pool, database, open, observer } = await setup();
  const publisher = open({ worker: "publisher" });
  const patient = open({ worker: "patient", outbox: { optimistic: false } });
  await publisher.migrate();
  const workers = ["one", "two"].map((worker) => consume(open({ worker, lease: 1_000 })));
  for (const bus of workers) await bus.run();
  await publisher.run({ parts: ["relay"] });

  let [n, busy] = [0, true];
  const publish = async (): Promise<void> => {
    for (let turn = 0; turn < TRANSACTIONS; turn++) {
      const rolledBack = turn % 11 === 0;
      await publisher
        .transaction(async (tx) => {
          await tx.publish(Placed, { n: ++n });
          await tx.publish(Loose, { n: ++n }, n % 3 === 0 ? { delay: 20 } : {});
          if (rolledBack) throw new Error("rolled back");
        })
        .catch(() => undefined);
      if (turn % 5 === 0) await patient.transaction((tx) => tx.publish(Brief, { n }));
      if (turn === TRANSACTIONS / 2) await workers[0]?.stop();
    }
  };
  // Until each thing that can happen to a dead letter has happened.
  const operate = async (): Promise<void> => {
    const done = new Set<string>();
    while (done.size < 4) {
      for (const { id, origin } of await publisher.deadLetters.list({ open: true, limit: 20 })) {
        const action = Number(id) % 2 === 0 ? "replay" : "discard";
        await publisher.deadLetters[action](id);
        done.add(`${action} ${origin}`);
      }
      const to = new Date();
      await publisher.republish({ from: new Date(to.getTime() - 100), to });
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  const watch = new ConservationWatch({
    database,
    schema: "sagabox",
    worker: "watch",
    observer,
    everyMs: 1_000,
    retentions: { deadLetterMs: 14 * 86_400_000, archiveMs: 30 * 86_400_000 },
  });
  const verdicts: unknown[] = [];
  const verify = async (): Promise<void> => {
    const history = new History({ database, schema: "sagabox", retentionMs: 30 * 86_400_000, observer });
    while (busy) {
      verdicts.push(...(await verifyConservation(database, "sagabox")).findings);
      verdicts.push(...(await watch.runPass()));
      await history.tidy();
    }
  };
  const verifying = verify();
  await Promise.all([publish(), publish(), operate()]);
  busy = false;
  await verifying;

  expect(verdicts).toEqual([]);
  const report = await verifyConservation(database, "sagabox");
  expect(report.findings).toEqual([]);
  const { written, sent, waiting, dead, discarded, unjudged, lost } = report.total;
  expect([written, unjudged, lost]).toEqual([sent + waiting + dead + discarded, 0, 0]);
  expect(written).toBeGreaterThan(100);
  const { rows } = await pool.query(
    "select exists (select 1 from sagabox.receipt where again_ids is not null) as again",
  );
  expect(rows).toEqual([{ again: true }]);
  expect(observer.of("conservation.checked").length).toBeGreaterThan(3);
  expect(observer.of("conservation.broken")).toEqual([]);
}, 60_000);
