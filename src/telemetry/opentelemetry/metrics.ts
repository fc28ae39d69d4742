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
 * The metrics of the catalogue under the same names. Counters and gauges are kept here and asked for when the SDK
 * collects, so that both ways show the same figures under the same cap; histograms are recorded as they happen.
 */
export function otelMetrics(meter: () => Meter, seriesPerMetric: number): Observer {
  let recorders: Recorders | undefined;
  return {
    tell(name, fields) {
      // Not before something is told: whoever registers an SDK after making the bus is heard too.
      recorders ??= instrumentsOf(meter(), seriesPerMetric);
      recorders[name](fields);
    },
  };
}

function instrumentsOf(meter: Meter, seriesPerMetric: number): Recorders {
  const registry = new MetricRegistry<MetricName>(metricCatalogue, seriesPerMetric);
  const histograms = new Map<string, Instrument>();
  for (const metric of registry.all) {
    if (metric.definition.kind === "histogram")
      histograms.set(metric.definition.name, recorded(meter, metric));
    else collected(meter, metric);
  }
  return recordersFor((name) => histograms.get(name) ?? registry.get(name));
}

function collected(meter: Meter, metric: Metric): void {
  const { name, kind } = metric.definition;
  const options = optionsOf(metric);
  const instrument =
    kind === "counter"
      ? meter.createObservableCounter(name, options)
      : meter.createObservableGauge(name, options);
  instrument.addCallback((result) => {
    for (const series of metric.series) result.observe(series.value, attributesOf(metric, series.labels));
  });
}

function recorded(meter: Meter, metric: Metric): Instrument {
  const { name, buckets = [] } = metric.definition;
  const advice = { explicitBucketBoundaries: [...buckets] };
  const histogram: Histogram = meter.createHistogram(name, { ...optionsOf(metric), advice });
  return {
    add: () => undefined,
    set: () => undefined,
    forget: () => undefined,
    observe(value, times, ...labels) {
      const attributes = attributesOf(metric, metric.kept(labels));
      for (let n = 0; n < times; n++) histogram.record(value, attributes);
    },
  };
}

function optionsOf({ definition: { name, help } }: Metric): {
  readonly description: string;
  readonly unit: string;
} {
  const unit = /_seconds(_total)?$/.test(name) ? "s" : /_bytes(_total)?$/.test(name) ? "By" : "1";
  return { description: help, unit };
}

function attributesOf({ definition }: Metric, labels: Series["labels"]): Attributes {
  return Object.fromEntries(definition.labels.map((name, index) => [name, labels[index] ?? ""]));
}
