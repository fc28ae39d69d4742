export interface MetricDefinition {
  readonly name: string;
  readonly kind: "counter" | "gauge" | "histogram";
  readonly help: string;
  readonly labels: readonly string[];
  /** Upper bounds of a histogram in ascending order; +Inf is added. */
  readonly buckets?: readonly number[];
}

export interface Series {
  readonly labels: readonly string[];
  value: number;
  /** Histograms only: how many observations fell into each bucket, the last one being +Inf. */
  readonly counts: number[];
  sum: number;
}

/** The operations on a metric. Label values are in the order of the definition. */
export interface Instrument {
  add(amount: number, ...labels: string[]): void;
  set(value: number, ...labels: string[]): void;
  /** Records a value several times, such as the duration of a batch for each of its messages. */
  observe(value: number, times: number, ...labels: string[]): void;
  /** Removes a series of a gauge whose value is no longer known. */
  forget(...labels: string[]): void;
}

const OVERFLOW = "other";
const MAX_LABEL_LENGTH = 200;

/** One metric and its series. New label values beyond the cap are counted together as "other". */
export class Metric implements Instrument {
  readonly definition: MetricDefinition;
  readonly #cap: number;
  readonly #series = new Map<string, Series>();
  /** The series found last, a cache for events of one batch, which carry equal labels. */
  #last: { readonly labels: readonly string[]; readonly series: Series } | undefined;

  constructor(definition: MetricDefinition, cap: number) {
    this.definition = definition;
    this.#cap = cap;
    // A metric without labels is exposed from the start, so that a missing series means a missing worker.
    if (definition.labels.length === 0) this.#find([]);
  }

  get series(): IterableIterator<Series> {
    return this.#series.values();
  }

  add(amount: number, ...labels: string[]): void {
    this.#find(labels).value += amount;
  }

  set(value: number, ...labels: string[]): void {
    this.#find(labels).value = value;
  }

  /** Returns the labels of the series that counts these: truncated, and "other" beyond the cap. */
  findLabels(labels: readonly string[]): readonly string[] {
    return this.#find(labels).labels;
  }

  observe(value: number, times: number, ...labels: string[]): void {
    const series = this.#find(labels);
    const buckets = this.definition.buckets ?? [];
    const index = buckets.findIndex((bound) => value <= bound);
    const slot = index === -1 ? buckets.length : index;
    series.counts[slot] = (series.counts[slot] ?? 0) + times;
    series.sum += value * times;
  }

  forget(...labels: string[]): void {
    this.#series.delete(joinLabels(labels.map(truncateLabel)));
    this.#last = undefined;
  }

  #find(labels: readonly string[]): Series {
    if (this.#last !== undefined && areSame(this.#last.labels, labels)) return this.#last.series;
    const key = joinLabels(labels);
    const series = this.#series.get(key) ?? this.#create(key, labels);
    this.#last = { labels, series };
    return series;
  }

  #create(key: string, labels: readonly string[]): Series {
    const { name, labels: names, buckets } = this.definition;
    if (labels.length !== names.length) {
      throw new RangeError(`${name} has ${names.length} labels, but ${labels.length} values were given.`);
    }
    // Labels that are equal after truncation share a series: Prometheus rejects a page with duplicate series.
    const writable = labels.map(truncateLabel);
    if (writable.some((label, index) => label !== labels[index])) return this.#find(writable);
    // The last slot is reserved for the overflow series.
    if (this.#series.size >= this.#cap - 1 && labels.some((label) => label !== OVERFLOW)) {
      return this.#find(labels.map(() => OVERFLOW));
    }
    const series: Series = {
      labels,
      value: 0,
      counts: buckets === undefined ? [] : [...buckets, Number.POSITIVE_INFINITY].map(() => 0),
      sum: 0,
    };
    this.#series.set(key, series);
    return series;
  }
}

function areSame(some: readonly string[], others: readonly string[]): boolean {
  if (some.length !== others.length) return false;
  for (let i = 0; i < some.length; i++) if (some[i] !== others[i]) return false;
  return true;
}

function joinLabels(labels: readonly string[]): string {
  return labels.length === 1 ? (labels[0] ?? "") : labels.join("\u0000");
}

function truncateLabel(label: string): string {
  return Buffer.from(label.slice(0, MAX_LABEL_LENGTH)).toString();
}

/** A fixed set of metrics, created from their definitions. */
export class MetricRegistry<Name extends string> {
  readonly #metrics: ReadonlyMap<string, Metric>;

  constructor(definitions: Readonly<Record<Name, Omit<MetricDefinition, "name">>>, seriesPerMetric: number) {
    const entries = Object.entries<Omit<MetricDefinition, "name">>(definitions);
    this.#metrics = new Map(
      entries.map(([name, definition]) => [name, new Metric({ name, ...definition }, seriesPerMetric)]),
    );
  }

  get(name: Name): Metric {
    const metric = this.#metrics.get(name);
    if (metric === undefined) throw new RangeError(`There is no metric ${name}.`);
    return metric;
  }

  get all(): IterableIterator<Metric> {
    return this.#metrics.values();
  }
}
