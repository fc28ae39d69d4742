import type { Metric, Series } from "./metrics.ts";

/** The Prometheus text format, version 0.0.4. */
export const EXPOSITION_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

export function exposition(metrics: Iterable<Metric>): string {
  let text = "";
  for (const metric of metrics) {
    const { name, help, kind } = metric.definition;
    text += `# HELP ${name} ${escapeText(help)}\n# TYPE ${name} ${kind}\n`;
    for (const series of metric.series) {
      text += kind === "histogram" ? histogramLines(metric, series) : plainLine(metric, series);
    }
  }
  return text;
}

function plainLine({ definition: { name, labels } }: Metric, series: Series): string {
  return `${name}${labelSet(labels, series.labels)} ${formatNumber(series.value)}\n`;
}

// Each bucket counts everything up to its bound, so the figures only grow.
function histogramLines({ definition }: Metric, series: Series): string {
  const { name, labels, buckets = [] } = definition;
  let total = 0;
  let lines = "";
  for (const [index, count] of series.counts.entries()) {
    total += count;
    const bound = formatNumber(buckets[index] ?? Number.POSITIVE_INFINITY);
    lines += `${name}_bucket${labelSet([...labels, "le"], [...series.labels, bound])} ${total}\n`;
  }
  const set = labelSet(labels, series.labels);
  return `${lines}${name}_sum${set} ${formatNumber(series.sum)}\n${name}_count${set} ${total}\n`;
}

function labelSet(names: readonly string[], values: readonly string[]): string {
  if (names.length === 0) return "";
  return `{${names.map((name, index) => `${name}="${quote(values[index] ?? "")}"`).join(",")}}`;
}

function quote(value: string): string {
  return escapeText(value).replaceAll('"', '\\"');
}

function escapeText(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
}

function formatNumber(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return "+Inf";
  if (value === Number.NEGATIVE_INFINITY) return "-Inf";
  return String(value);
}
