import { gauge, quantiles, rate, type Dashboard } from "./panel.ts";

const attempts = `sum by (job) (${rate("outbox_optimistic_send_attempts_total")})`;
const successes = `sum by (job) (${rate("outbox_optimistic_send_success_total")})`;
const published = `sum by (job) (${rate("outbox_published_events_total")})`;
const duplicates = `sum by (consumer_name) (${rate("consumer_inbox_duplicates_total")})`;
const processed = `sum by (consumer_name) (${rate("consumer_inbox_processed_total")})`;
const duration = "consumer_inbox_processing_duration_seconds";

export const outbox: Dashboard = {
  uid: "sagabox-outbox",
  title: "Saga Outbox Monitoring",
  description: "What is written, what gets out and how fast, and what consumers make of it.",
  panels: [
    {
      title: "Pending Events",
      description: "Waiting to be sent, failed ones included. Near zero when all is well.",
      unit: "short",
      queries: { "{{job}}": gauge("outbox_pending_events_total") },
    },
    {
      title: "Publish Rate",
      description: "Messages the transport confirmed.",
      unit: "cps",
      queries: { "{{event_type}}": `sum by (event_type) (${rate("outbox_published_events_total")})` },
    },
    {
      title: "Failure Rate by Event Type",
      description: "Attempts to send that failed. A broker that is down charges none.",
      unit: "cps",
      queries: {
        "{{event_type}} {{reason}}": `sum by (event_type, reason) (${rate("outbox_failed_events_total")})`,
      },
    },
    {
      title: "Publish Latency (p50, p95, p99)",
      description: "Until the transport confirmed.",
      unit: "s",
      queries: quantiles("outbox_publish_duration_seconds"),
    },
    {
      title: "Optimistic Send Success Rate",
      description: "Of the messages sent right after their commit. Over 99 % when all is well.",
      unit: "percentunit",
      queries: { "{{job}}": `${successes} / ${attempts}` },
    },
    {
      title: "Optimistic vs Polling Published Events",
      description: "Sent right after commit, and by the relay.",
      unit: "cps",
      queries: {
        "optimistic {{job}}": successes,
        "polling {{job}}": `clamp_min(${published} - ${successes}, 0)`,
      },
    },
    {
      title: "Fallback Rate",
      description: "Left to the relay after an early try, by the reason.",
      unit: "cps",
      queries: { "{{reason}}": `sum by (reason) (${rate("outbox_optimistic_send_failures_total")})` },
    },
    {
      title: "Inbox Duplicate Rate",
      description: "Of all deliveries, those that had been handled before.",
      unit: "percentunit",
      queries: { "{{consumer_name}}": `${duplicates} / (${duplicates} + ${processed})` },
    },
    {
      title: "Average Processing Time",
      description: "Of a handler with its transaction.",
      unit: "s",
      queries: {
        "{{consumer_name}}": `sum by (consumer_name) (${rate(`${duration}_sum`)}) / sum by (consumer_name) (${rate(`${duration}_count`)})`,
      },
    },
    {
      title: "Events by Consumer",
      description: "Handled, effect committed.",
      unit: "cps",
      queries: { "{{consumer_name}}": processed },
    },
  ],
};
