import { size, type Bench } from "../harness/bench.ts";
import { compare, type Contender } from "../harness/compare.ts";
import { result, type Result } from "../harness/result.ts";
import type { BenchDatabase } from "../harness/server.ts";
import { median, computeRatio } from "../harness/statistics.ts";
import { RunningBus } from "../product/running-bus.ts";
import { Workers } from "../product/worker-process.ts";

/** Two relays against one, each in a process of its own: the processor is the limit, then the broker's latency is. */
export async function twoRelays(bench: Bench): Promise<Result[]> {
  const place = await bench.server.database("relays");
  const writer = new RunningBus({ database: place.pool(5), outbox: { optimistic: false } });
  await writer.bus.migrate();
  const results: Result[] = [];
  const plans = [
    { id: "P11.noop", latencyMs: 0, backlog: size(bench, 40_000, 20_000) },
    { id: "P11.latency", latencyMs: 1, backlog: size(bench, 10_000, 5_000) },
  ] as const;
  for (const { id, latencyMs, backlog } of plans) {
    const drain = (relays: number): Contender => {
      return ({ warmUp }) =>
        drainWith(place, writer, { relays, latencyMs, backlog: warmUp ? 2_000 : backlog });
    };
    const samples = await compare(bench, `${id}, events/s`, { one: drain(1), two: drain(2) });
    results.push(
      result(id, computeRatio(samples.two, samples.one), {
        "one, events/s": median(samples.one),
        "two, events/s": median(samples.two),
      }),
    );
  }
  await writer.stop();
  await place.drop();
  return results;
}

async function drainWith(
  place: BenchDatabase,
  writer: RunningBus,
  { relays, latencyMs, backlog }: { relays: number; latencyMs: number; backlog: number },
): Promise<number> {
  await place.admin.query("vacuum analyze sagabox.outbox");
  const workers = new Workers(relays, { url: place.url, latencyMs, reportIds: false });
  await workers.waitForShare();
  const warm = workers.settles(1_000);
  await writer.write(1_000);
  await warm;
  const settled = workers.settles(backlog);
  await writer.write(backlog);
  const began = performance.now();
  await settled;
  const rate = (backlog / (performance.now() - began)) * 1000;
  await workers.stop();
  return rate;
}
