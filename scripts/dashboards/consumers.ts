import { gauge, quantiles, rate, type Dashboard } from "./panel.ts";

export const consumers: Dashboard = {
  uid: "sagabox-consumers",
  title: "Saga Consumers",
  description: "What arrives, what becomes of it, and what waits.",
  panels: [
    {
      title: "Deliveries by Their End",
      description: "Processed, duplicate, skipped, retried or dead.",
      unit: "cps",
      queries: { "{{queue}} {{status}}": `sum by (queue, status) (${rate("message_consume_total")})` },
    },
    {
      title: "Processing Time (p50, p95, p99)",
      description: "Of handlers, by consumer.",
      unit: "s",
      queries: quantiles("processing_duration_seconds", "queue"),
    },
    {
      title: "Retries",
      description: "Failures of handlers that are tried again.",
      unit: "cps",
      queries: {
        "{{consumer_name}} {{event_type}}": `sum by (consumer_name, event_type) (${rate("consumer_inbox_retries_total")})`,
      },
    },
    {
      title: "Stuck Handlers",
      description: "Those that did not end within their time.",
      unit: "cps",
      queries: {
        "{{consumer_name}} {{event_type}}": `sum by (consumer_name, event_type) (${rate("consumer_inbox_stuck_total")})`,
      },
    },
    {
      title: "Messages Waiting by Consumer",
      description: "Not handled yet, by topic. A gap means that the number is unknown.",
      unit: "short",
      queries: {
        "{{consumer_name}} {{topic}}": gauge("consumer_lag_messages", "consumer_name, topic"),
      },
    },
    {
      title: "Age of the Oldest Message by Consumer",
      description: "For how long it could have been handled. A gap means that the age is unknown.",
      unit: "s",
      queries: {
        "{{consumer_name}} {{topic}}": gauge("consumer_lag_oldest_age_seconds", "consumer_name, topic"),
      },
    },
    {
      title: "Waiting at the Broker",
      description: "For their slowest consumer, where the broker reports it.",
      unit: "short",
      queries: { "{{topic}}": gauge("transport_depth", "topic") },
    },
    {
      title: "Age of the Oldest Pending Event",
      description: "How long it has been due.",
      unit: "s",
      queries: { "{{job}}": gauge("outbox_oldest_pending_age_seconds") },
    },
    {
      title: "Destinations That Do Not Flow",
      description: "0 closed, 1 half-open, 2 open.",
      unit: "short",
      queries: {
        "{{topic}}": gauge("transport_breaker_state", "topic"),
        "paused {{topic}}": gauge("transport_paused", "topic"),
      },
    },
    {
      title: "Workers",
      description: "Processes that answer, and lanes each of them holds.",
      unit: "short",
      queries: {
        "{{job}}": 'count by (job) (sagabox_build_info{namespace=~"$namespace", job=~"$job"})',
        "lanes {{instance}} {{scope}}":
          'sum by (instance, scope) (lanes_owned{namespace=~"$namespace", job=~"$job"})',
      },
    },
    {
      title: "Connections to the Database",
      description: "Busy and idle ones of each process, and who waits for one.",
      unit: "short",
      queries: {
        "{{instance}} {{state}}": gauge("database_pool_connections", "instance, state"),
        "{{instance}} waiting": gauge("database_pool_waiting", "instance"),
        "{{instance}} at most": gauge("database_pool_connections_max", "instance"),
      },
    },
    {
      title: "Failures of the Database",
      description: "By what was being done. The work is tried again.",
      unit: "cps",
      queries: { "{{doing}}": `sum by (doing) (${rate("storage_failures_total")})` },
    },
  ],
};
