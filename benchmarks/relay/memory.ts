import { size, type Bench } from "../harness/bench.ts";
import { result, type Result } from "../harness/result.ts";
import { summary } from "../harness/statistics.ts";
import { loadRows } from "../product/load-rows.ts";
import { RunningBus } from "../product/running-bus.ts";
import { Workers } from "../product/worker-process.ts";

const BOUND_BYTES = 200 * 1_048_576;

/** The resident memory of a worker process at work on a great backlog. */
export async function memory(bench: Bench): Promise<Result[]> {
  const backlog = size(bench, 1_000_000, 100_000);
  const eaten = size(bench, 200_000, 50_000);
  const place = await bench.server.database("memory");
  const owner = new RunningBus({ database: place.pool(5), outbox: { optimistic: false } });
  await owner.bus.migrate();
  await owner.stop();
  await loadRows(place, "waiting", backlog);
  const workers = new Workers(1, { url: place.url, latencyMs: 0, reportIds: false });
  await workers.settles(eaten);
  const rss = workers.rssBytes();
  await workers.stop();
  await place.drop();
  bench.say(`memory: ${(rss / 1_048_576).toFixed(0)} MB at most with ${backlog} events waiting`);
  return [result("P15", summary([rss / BOUND_BYTES]), { "MB at most": rss / 1_048_576, backlog })];
}
