import type { Attributes, Histogram, Meter } from "@opentelemetry/api";
import {
  metricCatalogue,
  MetricRegistry,
  recordersFor,
  type Instrument,
  type Metric,
  type MetricName,
  type Observer,
  type Recorders,
  type Series,
} from "../index.ts";

/**
 * Exports the metrics of the catalogue under their names. Counters and gauges are kept in a registry and read when the
 * SDK collects, so that they equal the Prometheus values and have the same limit on series. Histograms are recorded immediately.
 */
export function otelMetrics(meter: () => Meter, seriesPerMetric: number): Observer {
  let recorders: Recorders | undefined;
  return {
    emit(name, fields) {
      // Created at the first event, so that an SDK registered after createBus() is used too.
      recorders ??= createRecorders(meter(), seriesPerMetric);
      recorders[name](fields);
    },
  };
}

function createRecorders(meter: Meter, seriesPerMetric: number): Recorders {
  const registry = new MetricRegistry<MetricName>(metricCatalogue, seriesPerMetric);
  const histograms = new Map<string, Instrument>();
  for (const metric of registry.all) {
    if (metric.definition.kind === "histogram")
      histograms.set(metric.definition.name, createOtelHistogram(meter, metric));
    else observeMetric(meter, metric);
  }
  return recordersFor((name) => histograms.get(name) ?? registry.get(name));
}

function observeMetric(meter: Meter, metric: Metric): void {
  const { name, kind } = metric.definition;
  const options = metricOptions(metric);
  const instrument =
    kind === "counter"
      ? meter.createObservableCounter(name, options)
      : meter.createObservableGauge(name, options);
  instrument.addCallback((result) => {
    for (const series of metric.series) result.observe(series.value, toAttributes(metric, series.labels));
  });
}

function createOtelHistogram(meter: Meter, metric: Metric): Instrument {
  const { name, buckets = [] } = metric.definition;
  const advice = { explicitBucketBoundaries: [...buckets] };
  const histogram: Histogram = meter.createHistogram(name, { ...metricOptions(metric), advice });
  return {
    add: () => undefined,
    set: () => undefined,
    forget: () => undefined,
    observe(value, times, ...labels) {
      const attributes = toAttributes(metric, metric.findLabels(labels));
      for (let n = 0; n < times; n++) histogram.record(value, attributes);
    },
  };
}

function metricOptions({ definition: { name, help } }: Metric): {
  readonly description: string;
  readonly unit: string;
} {
  const unit = /_seconds(_total)?$/.test(name) ? "s" : /_bytes(_total)?$/.test(name) ? "By" : "1";
  return { description: help, unit };
}

function toAttributes({ definition }: Metric, labels: Series["labels"]): Attributes {
  return Object.fromEntries(definition.labels.map((name, index) => [name, labels[index] ?? ""]));
}
