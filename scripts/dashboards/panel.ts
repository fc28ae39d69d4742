/** What a panel shows: a title, a unit of Grafana's, and queries by their legend. */
export interface Panel {
  readonly title: string;
  readonly description: string;
  readonly unit: string;
  readonly queries: Readonly<Record<string, string>>;
}

export interface Dashboard {
  readonly uid: string;
  readonly title: string;
  readonly description: string;
  readonly panels: readonly Panel[];
}

/** Every query is about the chosen installations. */
export function of(metric: string, labels = ""): string {
  return `${metric}{namespace=~"$namespace", job=~"$job"${labels === "" ? "" : `, ${labels}`}}`;
}

export function rate(metric: string, labels = ""): string {
  return `rate(${of(metric, labels)}[$__rate_interval])`;
}

/** Shown alike by every process, so the highest is taken. */
export function gauge(metric: string, by = "job"): string {
  return `max by (${by}) (${of(metric)})`;
}

/** The quantiles of a histogram of seconds. */
export function quantiles(histogram: string, by = ""): Readonly<Record<string, string>> {
  const labels = by === "" ? "le" : `le, ${by}`;
  const legend = by === "" ? "" : ` {{${by}}}`;
  const buckets = `sum by (${labels}) (${rate(`${histogram}_bucket`)})`;
  return Object.fromEntries(
    [50, 95, 99].map((percent) => [
      `p${percent}${legend}`,
      `histogram_quantile(${percent / 100}, ${buckets})`,
    ]),
  );
}
