import { compare } from "../harness/compare.ts";
import { size, type Bench } from "../harness/bench.ts";
import { result, type Result } from "../harness/result.ts";
import { median, computeRatio } from "../harness/statistics.ts";
import { loadBacklog, loadKeys } from "../product/load-rows.ts";
import { noopTransport } from "../product/noop-transport.ts";
import { RunningBus } from "../product/running-bus.ts";
import { Guide } from "../references/guide.ts";
import { LockAndDelete } from "../references/lock-and-delete.ts";
import { SketchRelay } from "../references/sketch-relay.ts";

/** One relay on a backlog, the publish costing nothing: against the textbook design and against the raw limit. */
export async function drain(bench: Bench): Promise<Result[]> {
  const backlog = size(bench, 20_000, 10_000);
  const slowBacklog = size(bench, 4_000, 1_000);
  const ordered = await openBus(bench, true);
  const waves = await openBus(bench, false);
  const guidePlace = await bench.server.database("guide");
  const rawPlace = await bench.server.database("raw");
  const guide = await Guide.open(guidePlace);
  const raw = await LockAndDelete.open(rawPlace);
  const sketchPlaces = {
    wide: await bench.server.database("wide"),
    narrow: await bench.server.database("narrow"),
  };
  const wide = await SketchRelay.open(sketchPlaces.wide, "wide");
  const narrow = await SketchRelay.open(sketchPlaces.narrow, "narrow");
  const samples = await compare(bench, "drain, events/s", {
    sagabox: () => ordered.drain(backlog),
    waves: () => waves.drain(backlog),
    raw: () => raw.drain(backlog),
    guide: () => guide.drain(slowBacklog),
    "sketch, wide rows": () => wide.drain(backlog),
    "sketch, narrow rows": () => narrow.drain(backlog),
  });
  for (const open of [ordered, waves]) await open.close();
  for (const place of [guidePlace, rawPlace, ...Object.values(sketchPlaces)]) await place.drop();
  const rates = {
    "events/s": median(samples.sagabox),
    "one unconfirmed per key, events/s": median(samples.waves),
  };
  // The message is kept, so the sketch that keeps it says what a machine leaves room for.
  const room = {
    guide: computeRatio(samples["sketch, narrow rows"], samples.guide),
    raw: computeRatio(samples["sketch, narrow rows"], samples.raw),
  };
  const againstGuide = {
    ...rates,
    "guide events/s": median(samples.guide),
    "sketch that keeps nothing": computeRatio(samples["sketch, wide rows"], samples.guide).ratio,
  };
  const againstRaw = {
    "raw events/s": median(samples.raw),
    "one unconfirmed per key, ratio": computeRatio(samples.waves, samples.raw).ratio,
  };
  return [
    result("P1.guide", computeRatio(samples.sagabox, samples.guide), againstGuide, room.guide),
    result("P2", computeRatio(samples.sagabox, samples.raw), againstRaw, room.raw),
  ];
}

async function openBus(bench: Bench, failsLaterOfKey: boolean) {
  const place = await bench.server.database("drain");
  const running = new RunningBus({
    database: place.pool(20),
    transport: noopTransport({ failsLaterOfKey }),
    outbox: { optimistic: false },
  });
  await running.start();
  await loadKeys(place);
  return {
    async drain(count: number): Promise<number> {
      await place.admin.query("vacuum analyze sagabox.outbox");
      return running.drain(count, () => loadBacklog(place, count));
    },
    async close(): Promise<void> {
      await running.stop();
      await place.drop();
    },
  };
}
