import { size, type Bench } from "../harness/bench.ts";
import { compare, type Contender } from "../harness/compare.ts";
import { result, type Detail, type Result } from "../harness/result.ts";
import { median, quantile, computeRatio } from "../harness/statistics.ts";
import { RawNotify } from "../references/notify.ts";
import { optimisticSender, relayElsewhere, relayInside } from "./senders.ts";
import { steadily, Stopwatch } from "./stopwatch.ts";

const EVERY_MS = 5; // 200 a second

/** From the moment COMMIT returned to the moment the message is handed to the transport, at a gentle load. */
export async function latency(bench: Bench): Promise<Result[]> {
  const count = size(bench, 600, 200);
  const tails: Record<string, number[]> = {};
  const rawPlace = await bench.server.database("notify");
  const raw = await RawNotify.open(rawPlace);
  const rawWatch = new Stopwatch();
  raw.onNotified((id, atNs) => rawWatch.notePublished([id], atNs));
  const elsewhere = await relayElsewhere(bench);
  const inside = await relayInside(bench);
  const optimistic = await optimisticSender(bench);

  const measureLatency = (
    name: string,
    watch: Stopwatch,
    write: (n: number) => Promise<Written>,
  ): Contender => {
    return async ({ warmUp }) => {
      const times = await steadily(warmUp ? 100 : count, EVERY_MS, async (n) => {
        const { id, committedNs } = await write(n);
        return watch.elapsedMs(id, committedNs);
      });
      if (!warmUp) (tails[name] ??= []).push(quantile(times, 0.99));
      return median(times);
    };
  };
  const samples = await compare(bench, "P6, ms at the median", {
    raw: measureLatency("raw", rawWatch, async (n) => {
      const id = `raw-${n}-${process.hrtime.bigint()}`;
      return { id, committedNs: await raw.write(id, n) };
    }),
    transaction: measureLatency("transaction", elsewhere.watch, elsewhere.inTransaction),
    caller: measureLatency("caller", elsewhere.watch, elsewhere.inCallersTransaction),
    inside: measureLatency("inside", inside.watch, inside.inTransaction),
    optimistic: measureLatency("optimistic", optimistic.watch, optimistic.inTransaction),
  });
  raw.close();
  for (const one of [elsewhere, inside, optimistic]) await one.close();
  await rawPlace.drop();

  const detail = (name: keyof typeof samples): Detail => ({
    "p50 ms": median(samples[name]),
    "p99 ms": median(tails[name] ?? []),
    "raw p50 ms": median(samples.raw),
    "raw p99 ms": median(tails["raw"] ?? []),
  });
  return [
    result("P6.transaction.p50", computeRatio(samples.transaction, samples.raw), {
      ...detail("transaction"),
      "relay in the same process, p50 ms": median(samples.inside),
    }),
    result("P6.caller.p50", computeRatio(samples.caller, samples.raw), detail("caller")),
    result("P6.optimistic.p50", computeRatio(samples.optimistic, samples.raw), detail("optimistic")),
  ];
}

interface Written {
  readonly id: string;
  readonly committedNs: bigint;
}
