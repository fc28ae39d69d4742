import { size, type Bench } from "../harness/bench.ts";
import { compare, type Contender } from "../harness/compare.ts";
import { result, type Result } from "../harness/result.ts";
import { median, computeRatio } from "../harness/statistics.ts";
import { loadRows, type Load } from "../product/load-rows.ts";
import { noopTransport } from "../product/noop-transport.ts";
import { RunningBus } from "../product/running-bus.ts";

const BATCH_SIZE = 500;

/** What it costs to read a batch when the table is empty otherwise, and when it holds a great many rows. */
export async function fetchCost(bench: Bench): Promise<Result[]> {
  const sizes = [size(bench, 100_000, 20_000), size(bench, 1_000_000, 100_000)];
  const results: Result[] = [];
  for (const load of ["waiting", "scheduled", "held"] as const) {
    const ratios = [];
    for (const rows of sizes) ratios.push({ rows, ...(await against(bench, load, rows)) });
    const largest = ratios.at(-1);
    if (largest === undefined) continue;
    const detail = ratios.map(({ rows, ratio, fullMs, emptyMs }) => [
      `${rows} rows`,
      `${ratio.toPrecision(3)} (${fullMs.toPrecision(2)} ms per ${BATCH_SIZE}, empty ${emptyMs.toPrecision(2)})`,
    ]);
    results.push(result(`P10.${load}`, largest, Object.fromEntries(detail) as Record<string, string>));
  }
  return results;
}

async function against(bench: Bench, load: Load, rows: number) {
  const empty = await open(bench, undefined, 0);
  const full = await open(bench, load, rows);
  const samples = await compare(bench, `fetch with ${rows} ${load}, ms per ${BATCH_SIZE} rows`, {
    full: full.measure,
    empty: empty.measure,
  });
  for (const one of [empty, full]) await one.close();
  return {
    ...computeRatio(samples.full, samples.empty),
    fullMs: median(samples.full),
    emptyMs: median(samples.empty),
  };
}

async function open(bench: Bench, load: Load | undefined, rows: number) {
  const place = await bench.server.database("fetch");
  const gate = new Gate();
  const running = new RunningBus({
    database: place.pool(20),
    transport: noopTransport({ onPublish: () => gate.pass() }),
    outbox: { optimistic: false, publishTimeout: "1h" },
  });
  await running.bus.migrate();
  if (load !== undefined) await loadRows(place, load, rows);
  if (load === "waiting") gate.close();
  await running.start();
  // A backlog is eaten to half its size at most, over all rounds.
  const most = load === "waiting" ? Math.floor(rows / 2 / BATCH_SIZE / (bench.rounds + 1)) : Infinity;
  const waves = Math.min(most, size(bench, 40, 15));
  const measure: Contender = async () => {
    running.fetches.length = 0;
    if (load === "waiting") await backlogReads(gate, waves);
    else for (let wave = 0; wave < waves; wave++) await running.drain(BATCH_SIZE); // nothing else there could be sent
    return median(
      running.fetches
        .filter(({ count }) => count >= BATCH_SIZE / 2)
        .map(({ count, durationMs }) => (durationMs / count) * BATCH_SIZE),
    );
  };
  return {
    measure,
    async close() {
      gate.open();
      await running.stop();
      await place.drop();
    },
  };
}

/** The relay reads this many batches of the backlog, one at a time, so that each read has the machine to itself. */
async function backlogReads(gate: Gate, batches: number): Promise<void> {
  for (let batch = 0; batch < batches; batch++) await gate.letOnePass();
}

/** Holds publishes back while it is closed. */
class Gate {
  readonly #held: (() => void)[] = [];
  #closed = false;
  #arrived: (() => void) | undefined;

  close(): void {
    this.#closed = true;
  }

  open(): void {
    this.#closed = false;
    for (const pass of this.#held.splice(0)) pass();
  }

  pass(): Promise<void> | undefined {
    if (!this.#closed) return undefined;
    const passed = new Promise<void>((resolve) => this.#held.push(resolve));
    this.#arrived?.();
    return passed;
  }

  /** Resolves when another one has arrived in its place. */
  async letOnePass(): Promise<void> {
    const next = new Promise<void>((resolve) => (this.#arrived = resolve));
    if (this.#held.length > 0) this.#held.shift()?.();
    await next;
  }
}
