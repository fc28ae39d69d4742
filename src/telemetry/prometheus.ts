import type { TelemetryEvents, TelemetryName } from "./events.ts";
import { metricCatalogue, type MetricName } from "./metric-catalogue.ts";
import { type Instrument, type Metric, MetricRegistry, type Series } from "./metrics.ts";
import type { Observer } from "./observer.ts";
import { PACKAGE_VERSION } from "./package-version.ts";

export interface PrometheusOptions {
  /** How many label combinations one metric may have; the rest is counted as "other". Default 500. */
  readonly seriesPerMetric?: number;
}

/** An observer that records metrics and renders the page that Prometheus scrapes. */
export interface PrometheusObserver extends Observer {
  readonly contentType: string;
  text(): string;
}

export function prometheus(options: PrometheusOptions = {}): PrometheusObserver {
  const registry = new MetricRegistry<MetricName>(metricCatalogue, options.seriesPerMetric ?? 500);
  registry.get("sagabox_build_info").set(1, PACKAGE_VERSION, process.version);
  const recorders = recordersFor((name) => registry.get(name));
  return {
    contentType: EXPOSITION_CONTENT_TYPE,
    text: () => exposition(registry.all),
    emit: (name, fields) => recorders[name](fields),
  };
}

export type Recorders = { readonly [Name in TelemetryName]: (fields: TelemetryEvents[Name]) => void };

const recordNothing = (): void => undefined;

/** Maps each event to the metrics it changes, for Prometheus and OpenTelemetry alike. */
export function recordersFor(metric: (name: MetricName) => Instrument): Recorders {
  return {
    ...outboxRecorders(metric),
    ...destinationRecorders(metric),
    ...consumerRecorders(metric),
    ...workerRecorders(metric),
    ...payloadRecorders(metric),
  };
}

function outboxRecorders(metric: (name: MetricName) => Instrument) {
  return {
    "outbox.written": (e) => metric("outbox_written_events_total").add(e.count),
    "outbox.duplicate": (e) => metric("outbox_duplicate_events_total").add(1, e.type),
    "outbox.refused": (e) => metric("outbox_refused_events_total").add(1, e.topic, e.policy),
    "relay.fetched": (e) => metric("outbox_claimed_events_total").add(e.count),
    "relay.batch": (e) => metric("outbox_batch_duration_seconds").observe(e.durationMs / 1000, 1),
    "relay.published": (e) => {
      metric("outbox_published_events_total").add(e.count, e.type);
      metric("outbox_publish_duration_seconds").observe(e.durationMs / 1000, e.count, e.type);
      metric("message_publish_total").add(e.count, e.topic, e.type);
      metric("publish_latency_seconds").observe(e.durationMs / 1000, e.count, e.topic);
    },
    "relay.failed": (e) => metric("outbox_failed_events_total").add(1, e.type, e.reason),
    "relay.paused": (e) => metric("transport_pauses_total").add(1, e.topic, e.reason),
    "relay.lost": (e) => metric("outbox_lost_leases_total").add(e.count),
    "optimistic.attempted": (e) => metric("outbox_optimistic_send_attempts_total").add(e.count),
    "optimistic.succeeded": (e) => {
      metric("outbox_optimistic_send_success_total").add(e.count);
      metric("outbox_optimistic_send_latency_seconds").observe(e.durationMs / 1000, e.count);
    },
    "optimistic.failed": (e) => metric("outbox_optimistic_send_failures_total").add(e.count, e.reason),
    "scheduled.due": (e) => metric("outbox_scheduled_due_total").add(e.count),
  } satisfies Partial<Recorders>;
}

function destinationRecorders(metric: (name: MetricName) => Instrument) {
  const record = ({ topic, open }: { topic: string; open: number }, value: number, state: string): void => {
    metric("transport_breaker_state").set(value, topic);
    metric("transport_breakers_open").set(open);
    metric("transport_breaker_changes_total").add(1, state);
  };
  return {
    "breaker.opened": (e) => record(e, 2, "open"),
    "breaker.probing": (e) => record(e, 1, "half-open"),
    "breaker.closed": (e) => record(e, 0, "closed"),
    "breaker.forgotten": (e) => record(e, 0, "forgotten"),
    "depth.measured": (e) => metric("transport_depth").set(e.depth, e.topic),
    "depth.forgotten": (e) => metric("transport_depth").forget(e.topic),
    "depth.unknown": recordNothing,
    "destination.paused": (e) => metric("transport_paused").set(1, e.topic),
    "destination.resumed": (e) => metric("transport_paused").set(0, e.topic),
  } satisfies Partial<Recorders>;
}

function consumerRecorders(metric: (name: MetricName) => Instrument) {
  return {
    "consumer.processed": (e) => {
      metric("consumer_inbox_processed_total").add(1, e.consumer, e.type);
      metric("consumer_inbox_processing_duration_seconds").observe(
        e.durationMs / 1000,
        1,
        e.consumer,
        e.type,
      );
      metric("message_consume_total").add(1, e.consumer, "processed");
      metric("processing_duration_seconds").observe(e.durationMs / 1000, 1, e.consumer, e.type);
    },
    "consumer.duplicate": (e) => {
      metric("consumer_inbox_duplicates_total").add(1, e.consumer, e.type);
      metric("message_consume_total").add(1, e.consumer, "duplicate");
    },
    "consumer.skipped": (e) => metric("message_consume_total").add(1, e.consumer, "skipped"),
    "consumer.passed_over": (e) => metric("message_consume_total").add(1, e.consumer, "passed_over"),
    "consumer.retried": (e) => {
      metric("consumer_inbox_retries_total").add(1, e.consumer, e.type);
      metric("message_consume_total").add(1, e.consumer, "retried");
    },
    "consumer.began": recordNothing,
    "consumer.interrupted": recordNothing,
    "consumer.sealed": recordNothing,
    "consumer.resumed": recordNothing,
    "consumer.stuck": (e) => metric("consumer_inbox_stuck_total").add(1, e.consumer, e.type),
    "consumer.suspect": (e) => metric("consumer_inbox_suspects_total").add(1, e.consumer),
    "dead_letter.buried": (e) => {
      metric("dead_letters_total").add(1, e.origin, e.type, e.reason);
      if (e.origin === "outbox") metric("outbox_dead_letter_events_total").add(1, e.type);
      else metric("message_consume_total").add(1, e.consumer ?? "", "dead");
    },
  } satisfies Partial<Recorders>;
}

function payloadRecorders(metric: (name: MetricName) => Instrument) {
  return {
    "payload.stored": (e) => {
      metric("payloads_stored_total").add(1, e.store, e.as);
      metric("payload_stored_bytes_total").add(e.bytes, e.store, e.as);
      metric("payload_store_duration_seconds").observe(e.durationMs / 1000, 1, e.store, "put");
    },
    "payload.fetched": (e) => {
      metric("payloads_fetched_total").add(1, e.store, e.as);
      metric("payload_store_duration_seconds").observe(e.durationMs / 1000, 1, e.store, "get");
    },
    "payload.failed": (e) => metric("payload_store_failures_total").add(1, e.store, e.code),
    "payload.collected": (e) => metric("payloads_collected_total").add(e.count, e.store, e.reason),
  } satisfies Partial<Recorders>;
}

function workerRecorders(metric: (name: MetricName) => Instrument) {
  return {
    "saga.changed": (e) => metric("sagas_total").add(1, e.type, e.to),
    "saga.step": (e) => {
      metric("saga_steps_total").add(1, e.type, e.step.replace(/@.*/, ""), e.status);
      if (e.status === "completed") {
        metric("saga_step_duration_seconds").observe(
          e.durationMs / 1000,
          1,
          e.type,
          e.step.replace(/@.*/, ""),
        );
      }
    },
    "saga.unknown_version": recordNothing,
    "saga.definition_changed": recordNothing,
    "saga.failed": (e) => metric("saga_failures_total").add(1, e.type),
    "lanes.gained": (e) => metric("lanes_owned").add(e.lanes, e.scope),
    "lanes.released": (e) => metric("lanes_owned").add(-e.lanes, e.scope),
    "lanes.lost": (e) => {
      metric("lanes_owned").add(-e.lanes, e.scope);
      metric("lanes_lost_total").add(e.lanes, e.scope);
    },
    "member.gone": (e) => metric("members_gone_total").add(1, e.scope),
    "audit.sealed": (e) => metric("audit_sealed_rows_total").add(e.rows),
    "audit.chain_begun": recordNothing,
    "audit.verified": (e) => metric("audit_verified_rows_total").add(e.rows),
    "audit.broken": (e) => metric("audit_broken_total").add(1, e.kind),
    "conservation.checked": (e) => {
      metric("conservation_breaches").set(e.breaches);
      metric("conservation_checked_messages_total").add(e.messages);
      metric("conservation_checks_total").add(1, e.outcome);
    },
    "conservation.broken": recordNothing,
    "history.partition": (e) => metric("history_partitions_total").add(1, e.action),
    "history.cleaned": (e) => metric("history_rows_removed_total").add(e.count, e.table),
    "transport.unreachable": recordNothing,
    "request.settled": (e) => {
      metric("requests_total").add(1, e.type, e.outcome);
      metric("request_duration_seconds").observe(e.durationMs / 1000, 1, e.type);
    },
    "notice.sent": (e) => metric("dead_letter_notices_total").add(1, e.via, "sent"),
    "notice.failed": (e) => metric("dead_letter_notices_total").add(1, e.via, "failed"),
    "notice.dropped": (e) => metric("dead_letter_notices_total").add(1, e.via, "dropped"),
    "locks.blocked": (e) => metric("lock_waits_total").add(1, e.doing),
    "storage.failed": (e) => metric("storage_failures_total").add(1, e.doing),
    "worker.started": recordNothing,
    "worker.stopping": recordNothing,
    "worker.stopped": recordNothing,
    "backlog.measured": (e) => {
      metric("outbox_pending_events_total").set(e.pending);
      metric("outbox_claimed_events").set(e.claimed);
      metric("outbox_oldest_pending_age_seconds").set(e.oldestAgeMs / 1000);
      metric("dead_letters").set(e.deadLetters);
      metric("lanes_unowned").set(e.unownedLanes, "outbox");
    },
    "dead_letters.measured": (e) => metric("dead_letters_open").set(e.count, e.consumer, e.type),
    "sagas.measured": (e) => {
      if (e.status === "stuck") metric("sagas_stuck").set(e.count);
      else metric("sagas_open").set(e.count, e.status);
    },
    "lag.measured": (e) => {
      const labels = [e.consumer, e.topic ?? ""];
      setIfKnown(metric("consumer_lag_messages"), e.waiting, labels);
      const oldestSeconds = e.oldestAgeMs === null ? null : e.oldestAgeMs / 1000;
      setIfKnown(metric("consumer_lag_oldest_age_seconds"), oldestSeconds, labels);
    },
    "lag.unknown": recordNothing,
    "pool.measured": (e) => {
      metric("database_pool_connections_max").set(e.max);
      metric("database_pool_connections").set(e.total - e.idle, "busy");
      metric("database_pool_connections").set(e.idle, "idle");
      metric("database_pool_waiting").set(e.waiting);
    },
    "process.measured": (e) => {
      metric("process_start_time_seconds").set(e.startedMs / 1000);
      metric("process_cpu_seconds_total").set(e.cpuMs / 1000);
      metric("process_resident_memory_bytes").set(e.residentBytes);
      metric("nodejs_heap_size_used_bytes").set(e.heapBytes);
      metric("nodejs_eventloop_lag_max_seconds").set(e.lagMaxMs / 1000);
      metric("nodejs_eventloop_lag_p99_seconds").set(e.lagP99Ms / 1000);
    },
  } satisfies Partial<Recorders>;
}

/** An unknown value has no series, so that it is not taken for 0. */
function setIfKnown(gauge: Instrument, value: number | null, labels: readonly string[]): void {
  if (value === null) gauge.forget(...labels);
  else gauge.set(value, ...labels);
}

/** The Prometheus text format, version 0.0.4. */
const EXPOSITION_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

function exposition(metrics: Iterable<Metric>): string {
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

// Buckets are cumulative: each counts all observations up to its bound.
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
