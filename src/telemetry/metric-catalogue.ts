import type { MetricDefinition } from "./metrics.ts";

const seconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60] as const;

function counter(help: string, ...labels: string[]): Omit<MetricDefinition, "name"> {
  return { kind: "counter", help, labels };
}

function gauge(help: string, ...labels: string[]): Omit<MetricDefinition, "name"> {
  return { kind: "gauge", help, labels };
}

function histogram(help: string, ...labels: string[]): Omit<MetricDefinition, "name"> {
  return { kind: "histogram", help, labels, buckets: seconds };
}

/** Every metric by name. Labels contain names of types, topics and consumers, never ids, keys or personal data. */
export const metricCatalogue = {
  outbox_pending_events_total: gauge(
    "Messages waiting to be sent, failed ones included. Every process reports the same value: use max, not sum.",
  ),
  outbox_claimed_events: gauge(
    "Messages in flight in this process: read under its lease and not settled yet. Each process reports its own: use sum.",
  ),
  outbox_oldest_pending_age_seconds: gauge(
    "How long the oldest unsent message has been due. Use max, not sum.",
  ),
  outbox_claimed_events_total: counter("Messages read under a lease, to be sent."),
  outbox_published_events_total: counter("Messages the transport confirmed.", "event_type"),
  outbox_failed_events_total: counter("Attempts to send that failed.", "event_type", "reason"),
  outbox_dead_letter_events_total: counter("Messages dead-lettered in the outbox.", "event_type"),
  outbox_publish_duration_seconds: histogram("Time until the transport confirmed a message.", "event_type"),
  outbox_batch_duration_seconds: histogram("Time to publish and settle one batch."),
  outbox_optimistic_send_attempts_total: counter("Messages sent right after their commit."),
  outbox_optimistic_send_success_total: counter("Messages confirmed right after their commit."),
  outbox_optimistic_send_failures_total: counter(
    "Messages left to the relay after an optimistic send failed.",
    "reason",
  ),
  outbox_optimistic_send_latency_seconds: histogram("Time until an optimistic send was confirmed."),
  outbox_written_events_total: counter("Messages written to the outbox, rolled back ones included."),
  outbox_duplicate_events_total: counter(
    "Messages not written because their id was seen before.",
    "event_type",
  ),
  outbox_refused_events_total: counter(
    "Messages refused or dropped because the outbox was full.",
    "topic",
    "policy",
  ),
  outbox_lost_leases_total: counter(
    "Messages that could not be settled because their lanes were taken over.",
  ),
  outbox_scheduled_due_total: counter("Scheduled messages that became due."),
  consumer_inbox_processed_total: counter(
    "Messages handled, effect committed.",
    "consumer_name",
    "event_type",
  ),
  consumer_inbox_duplicates_total: counter(
    "Deliveries of messages handled before.",
    "consumer_name",
    "event_type",
  ),
  consumer_inbox_processing_duration_seconds: histogram(
    "Time of a handler with its transaction.",
    "consumer_name",
    "event_type",
  ),
  consumer_inbox_retries_total: counter("Handler failures that are retried.", "consumer_name", "event_type"),
  consumer_inbox_stuck_total: counter(
    "Handlers that exceeded their deadline.",
    "consumer_name",
    "event_type",
  ),
  consumer_inbox_suspects_total: counter("Messages in flight when a worker died.", "consumer_name"),
  consumer_lag_messages: gauge(
    "Messages that a consumer has not handled yet. The topic is empty if the transport cannot tell topics apart; no series means unknown. Use max, not sum.",
    "consumer_name",
    "topic",
  ),
  consumer_lag_oldest_age_seconds: gauge(
    "For how long the oldest of them could have been handled; 0 if none could. No series means unknown. Use max, not sum.",
    "consumer_name",
    "topic",
  ),
  message_publish_total: counter("Messages published, by destination.", "exchange", "routing_key"),
  publish_latency_seconds: histogram("Time until a destination confirmed.", "exchange"),
  message_consume_total: counter(
    "Deliveries by outcome: processed, duplicate, skipped, passed_over, retried, dead.",
    "queue",
    "status",
  ),
  processing_duration_seconds: histogram("Time of a handler.", "queue", "message_type"),
  requests_total: counter("Requests by outcome: done, failed, timeout.", "event_type", "outcome"),
  request_duration_seconds: histogram("Time from request to reply.", "event_type"),
  payloads_stored_total: counter("Large payloads and attachments put into a store.", "store", "kind"),
  payload_stored_bytes_total: counter("Bytes put into a store.", "store", "kind"),
  payloads_fetched_total: counter("Large payloads and attachments read from a store.", "store", "kind"),
  payload_store_duration_seconds: histogram(
    "Time to store or fetch one object; for an attachment this includes the stream of the caller.",
    "store",
    "operation",
  ),
  payload_store_failures_total: counter("Failures of a store by error code.", "store", "code"),
  payloads_collected_total: counter("Payloads and attachments deleted from a store.", "store", "reason"),
  dead_letters: gauge("Open dead letters. Use max, not sum."),
  dead_letters_total: counter("Messages that became dead letters.", "origin", "event_type", "reason"),
  dead_letter_notices_total: counter(
    "Dead-letter notices by outcome: sent, failed, dropped.",
    "via",
    "outcome",
  ),
  sagas_total: counter("Sagas that entered a status.", "saga_type", "status"),
  saga_steps_total: counter("Saga steps that entered a status.", "saga_type", "step", "status"),
  saga_step_duration_seconds: histogram(
    "Time from the beginning of a step to its success.",
    "saga_type",
    "step",
  ),
  saga_failures_total: counter("Failed attempts to advance a saga, caused by the database.", "saga_type"),
  audit_sealed_rows_total: counter("Rows of the audit log that were sealed."),
  audit_verified_rows_total: counter("Rows of the audit log that were compared with their seals."),
  audit_broken_total: counter("Findings that the audit log differs from its seals.", "kind"),
  conservation_breaches: gauge(
    "Known breaches: messages not accounted for or in two states. Every process reports the same value: use max, not sum.",
  ),
  conservation_checked_messages_total: counter("Messages checked by the conservation check."),
  conservation_checks_total: counter(
    "Rounds of the conservation check by outcome: kept, broken, incomplete, elsewhere.",
    "outcome",
  ),
  dead_letters_open: gauge(
    "Open dead letters among the newest 10,000; consumer_name is outbox where they could not be sent. Use max, not sum.",
    "consumer_name",
    "event_type",
  ),
  sagas_open: gauge("Sagas that have not ended, up to 100,000. Use max, not sum.", "status"),
  sagas_stuck: gauge("Sagas with something due for over ten minutes. Use max, not sum."),
  database_pool_connections_max: gauge("Connections to the database this process may have."),
  database_pool_connections: gauge("Database connections of this process, by state: busy or idle.", "state"),
  database_pool_waiting: gauge("Callers in this process that wait for a connection."),
  process_start_time_seconds: gauge("When this process started, in seconds since 1970."),
  process_cpu_seconds_total: counter("CPU time of this process."),
  process_resident_memory_bytes: gauge("Resident memory of this process."),
  nodejs_heap_size_used_bytes: gauge("Used heap memory of this process."),
  nodejs_eventloop_lag_max_seconds: gauge("Largest event-loop delay over the last scrape interval."),
  nodejs_eventloop_lag_p99_seconds: gauge(
    "99th percentile of event-loop delay over the last scrape interval.",
  ),
  lanes_unowned: gauge(
    "Lanes that no live worker holds; their messages are not sent. Use max, not sum.",
    "scope",
  ),
  lanes_owned: gauge("Lanes this process holds.", "scope"),
  lanes_lost_total: counter("Lanes taken over before they could be renewed.", "scope"),
  members_gone_total: counter("Workers whose lease expired without a clean stop.", "scope"),
  transport_breaker_state: gauge(
    "State of the circuit breaker: 0 closed or forgotten, 1 half-open, 2 open. Topics that never failed have no series.",
    "topic",
  ),
  transport_breakers_open: gauge("Destinations of this process that are open or half-open."),
  transport_breaker_changes_total: counter(
    "How often a destination opened, was probed, closed or was forgotten.",
    "state",
  ),
  transport_depth: gauge(
    "Messages waiting at the broker, or in the queue of PostgreSQL, for their slowest group. Use max, not sum.",
    "topic",
  ),
  transport_paused: gauge(
    "1 while sending to a topic is paused because its queue at the broker is full.",
    "topic",
  ),
  transport_pauses_total: counter("Pauses after a failure of the broker.", "topic", "reason"),
  lock_waits_total: counter("Warnings that another database session blocks our work.", "doing"),
  storage_failures_total: counter("Failures of the database.", "doing"),
  history_rows_removed_total: counter("Rows removed after their retention.", "table"),
  history_partitions_total: counter("Partitions attached, dropped or kept.", "action"),
  sagabox_build_info: gauge("Always 1; the labels contain the versions in use.", "version", "node_version"),
} as const satisfies Record<string, Omit<MetricDefinition, "name">>;

export type MetricName = keyof typeof metricCatalogue;
