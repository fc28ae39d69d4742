import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
  type HistogramMetricData,
  type MetricData,
} from "@opentelemetry/sdk-metrics";
import { expect, onTestFinished, test } from "vitest";
import { metricCatalogue, prometheus, type Observer } from "../index.ts";
import { openTelemetry } from "./index.ts";

function setup(seriesPerMetric?: number) {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
  const meterProvider = new MeterProvider({ readers: [reader] });
  onTestFinished(() => meterProvider.shutdown());
  const capped = seriesPerMetric === undefined ? {} : { seriesPerMetric };
  const { observer } = openTelemetry({ meterProvider, tracerProvider: false, ...capped });
  return {
    observer: observer as Observer,
    collected: async (): Promise<Map<string, MetricData>> => {
      await reader.forceFlush();
      const all =
        exporter
          .getMetrics()
          .at(-1)
          ?.scopeMetrics.flatMap(({ metrics }) => metrics) ?? [];
      return new Map(all.map((metric) => [metric.descriptor.name, metric]));
    },
  };
}

function emitAll(observer: Observer): void {
  observer.emit("backlog.measured", {
    pending: 7,
    claimed: 3,
    oldestAgeMs: 1_500,
    deadLetters: 2,
    unownedLanes: 0,
  });
  observer.emit("relay.published", { type: "order.placed", topic: "orders", count: 4, durationMs: 20 });
  observer.emit("lanes.gained", { scope: "outbox", lanes: 256 });
  observer.emit("lanes.released", { scope: "outbox", lanes: 100 });
}

test("G2: counters and gauges have the names, labels and values of the Prometheus page", async () => {
  const { observer, collected } = setup();
  const page = prometheus();
  for (const one of [observer, page]) emitAll(one);
  const metrics = await collected();
  const shown = (name: string) =>
    metrics.get(name)?.dataPoints.map(({ attributes, value }) => ({ attributes, value }));
  expect(shown("outbox_pending_events_total")).toEqual([{ attributes: {}, value: 7 }]);
  expect(shown("lanes_owned")).toEqual([{ attributes: { scope: "outbox" }, value: 156 }]);
  expect(shown("message_publish_total")).toEqual([
    { attributes: { exchange: "orders", routing_key: "order.placed" }, value: 4 },
  ]);
  expect(page.text()).toContain('message_publish_total{exchange="orders",routing_key="order.placed"} 4');
  const plain = Object.entries(metricCatalogue).filter(
    ([, { kind, labels }]) => kind !== "histogram" && labels.length === 0,
  );
  expect([...metrics.keys()]).toEqual(expect.arrayContaining(plain.map(([name]) => name)));
});

test("G2: histograms have the buckets of the catalogue, and count each message of a batch", async () => {
  const { observer, collected } = setup();
  emitAll(observer);
  const metric = (await collected()).get("outbox_publish_duration_seconds") as HistogramMetricData;
  expect(metric.descriptor).toMatchObject({ unit: "s" });
  expect(metric.dataPoints[0]?.attributes).toEqual({ event_type: "order.placed" });
  expect(metric.dataPoints[0]?.value).toMatchObject({
    count: 4,
    buckets: { boundaries: [...(metricCatalogue.outbox_publish_duration_seconds.buckets ?? [])] },
  });
  expect(metric.dataPoints[0]?.value.sum).toBeCloseTo(0.08);
});

test("thousands of label values stay within the cap, in counters and in histograms", async () => {
  const { observer, collected } = setup(20);
  for (let n = 0; n < 2_000; n++)
    observer.emit("relay.published", { type: `t${n}`, topic: `t${n}`, count: 1, durationMs: 1 });
  const metrics = await collected();
  for (const name of [
    "outbox_published_events_total",
    "outbox_publish_duration_seconds",
    "publish_latency_seconds",
  ])
    expect(metrics.get(name)?.dataPoints).toHaveLength(20);
});
