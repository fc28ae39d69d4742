import { size, type Bench } from "../harness/bench.ts";
import { result, type Result } from "../harness/result.ts";
import { median, summary } from "../harness/statistics.ts";
import { countStatements, killedVersions, measureWal } from "../harness/usage.ts";
import { noopTransport } from "../product/noop-transport.ts";
import { RunningBus } from "../product/running-bus.ts";

/** The tables a message passes through; leases and heartbeats are few and reported beside them. */
const MESSAGE_TABLES = "^sagabox\\.(outbox|message|receipt)";

/** What draining one event writes to the log and leaves behind for vacuum, with the message kept as history. */
export async function cost(bench: Bench): Promise<Result[]> {
  const backlog = size(bench, 20_000, 10_000);
  const rounds: Cost[] = [];
  for (let turn = 0; turn < bench.rounds; turn++) rounds.push(await drainOnce(bench, backlog));
  const pick = (what: keyof Cost): number[] => rounds.map((one) => one[what]);
  return [
    result("P8.wal", summary(pick("walBytes")), {
      "statements per event": median(pick("statements")),
      "WAL bytes per event written": median(pick("writeWalBytes")),
    }),
    result("P8.dead", summary(pick("killed")), { "in all tables of the schema": median(pick("killedAll")) }),
  ];
}

interface Cost {
  readonly walBytes: number;
  readonly writeWalBytes: number;
  readonly statements: number;
  readonly killed: number;
  readonly killedAll: number;
}

async function drainOnce(bench: Bench, backlog: number): Promise<Cost> {
  const place = await bench.server.database("cost");
  const writers = place.pool(5);
  const writer = new RunningBus({ database: writers, outbox: { optimistic: false } });
  await writer.bus.migrate();
  const writeWal = await measureWal(place, () => writer.write(backlog));
  await writer.stop();
  await writers.end();
  const killed = await killedVersions(place, MESSAGE_TABLES);
  const killedAll = await killedVersions(place, "^sagabox\\.");
  const pool = place.pool(20);
  const statements = countStatements(pool);
  const relay = new RunningBus({ database: pool, transport: noopTransport(), outbox: { optimistic: false } });
  const settled = relay.settles(backlog);
  const wal = await measureWal(place, async () => {
    await relay.start();
    await settled;
  });
  const sent = statements.count();
  await relay.stop();
  await pool.end();
  const cost = {
    walBytes: wal / backlog,
    writeWalBytes: writeWal / backlog,
    statements: sent / backlog,
    killed: ((await killedVersions(place, MESSAGE_TABLES)) - killed) / backlog,
    killedAll: ((await killedVersions(place, "^sagabox\\.")) - killedAll) / backlog,
  };
  await place.drop();
  bench.say(`cost: ${cost.walBytes.toFixed(0)} B of WAL, ${cost.killed.toFixed(3)} versions per event`);
  return cost;
}
