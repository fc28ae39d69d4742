import { size, type Bench } from "../harness/bench.ts";
import { result, type Result } from "../harness/result.ts";
import { median, summary } from "../harness/statistics.ts";
import { noopTransport } from "../product/noop-transport.ts";
import { RunningBus } from "../product/running-bus.ts";

const PER_CYCLE = 1_000;
const ENDS = 5;

/** Many small backlogs, one after the other, while an old snapshot keeps every dead row in the way of the scans. */
export async function oldSnapshot(bench: Bench): Promise<Result[]> {
  const cycles = size(bench, 40, 20);
  const ratios: number[] = [];
  for (let turn = 0; turn < bench.rounds; turn++) {
    const { first, last } = await measureSlowdown(bench, cycles);
    ratios.push(last / first);
    bench.say(`old snapshot: round ${turn + 1}: ${first.toFixed(0)} events/s first, ${last.toFixed(0)} last`);
  }
  return [result("P9", summary(ratios), { events: cycles * PER_CYCLE })];
}

async function measureSlowdown(bench: Bench, cycles: number): Promise<{ first: number; last: number }> {
  const place = await bench.server.database("snapshot");
  const running = new RunningBus({
    database: place.pool(20),
    transport: noopTransport(),
    outbox: { optimistic: false },
  });
  await running.start();
  for (let warmUp = 0; warmUp < 10; warmUp++) await running.drain(PER_CYCLE);
  const old = await place.admin.connect();
  await old.query("begin isolation level repeatable read");
  await old.query("select count(*) from sagabox.outbox");
  const rates: number[] = [];
  for (let cycle = 0; cycle < cycles; cycle++) rates.push(await running.drain(PER_CYCLE));
  await old.query("commit");
  old.release();
  await running.stop();
  await place.drop();
  return { first: median(rates.slice(0, ENDS)), last: median(rates.slice(-ENDS)) };
}
