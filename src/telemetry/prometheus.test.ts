import { expect, test } from "vitest";
import { metricCatalogue } from "./metric-catalogue.ts";
import { prometheus } from "./prometheus.ts";

const processed = { consumer: "billing", type: "order.placed", topic: "orders", id: "1", durationMs: 12 };
const buried = { id: "1", type: "order.placed", topic: "orders", reason: "permanent", error: "no" };

test("events are counted under the documented names", () => {
  const observer = prometheus();
  observer.tell("backlog.measured", { pending: 7, claimed: 3, oldestAgeMs: 1500, deadLetters: 2 });
  observer.tell("relay.fetched", { count: 5, durationMs: 1 });
  observer.tell("relay.published", { type: "order.placed", topic: "orders", count: 4, durationMs: 20 });
  observer.tell("relay.failed", { ...buried, attempt: 1, delayMs: 1, reason: "rejected" });
  observer.tell("optimistic.attempted", { count: 2 });
  observer.tell("optimistic.succeeded", { count: 1, durationMs: 3 });
  observer.tell("optimistic.failed", { count: 1, reason: "timeout", error: "late" });
  observer.tell("consumer.processed", processed);
  observer.tell("consumer.duplicate", processed);
  observer.tell("dead_letter.buried", { ...buried, origin: "outbox", consumer: null });
  observer.tell("dead_letter.buried", { ...buried, origin: "consumer", consumer: "billing" });
  const lines = observer.text().split("\n");
  expect(lines).toEqual(
    expect.arrayContaining([
      "# TYPE outbox_pending_events_total gauge",
      "outbox_pending_events_total 7",
      "outbox_oldest_pending_age_seconds 1.5",
      "outbox_claimed_events_total 5",
      'outbox_published_events_total{event_type="order.placed"} 4',
      'outbox_failed_events_total{event_type="order.placed",reason="rejected"} 1',
      'outbox_dead_letter_events_total{event_type="order.placed"} 1',
      'outbox_publish_duration_seconds_count{event_type="order.placed"} 4',
      "outbox_optimistic_send_attempts_total 2",
      "outbox_optimistic_send_success_total 1",
      'outbox_optimistic_send_failures_total{reason="timeout"} 1',
      "outbox_optimistic_send_latency_seconds_count 1",
      'consumer_inbox_processed_total{consumer_name="billing",event_type="order.placed"} 1',
      'consumer_inbox_duplicates_total{consumer_name="billing",event_type="order.placed"} 1',
      'consumer_inbox_processing_duration_seconds_count{consumer_name="billing",event_type="order.placed"} 1',
      'message_publish_total{exchange="orders",routing_key="order.placed"} 4',
      'publish_latency_seconds_count{exchange="orders"} 4',
      'message_consume_total{queue="billing",status="processed"} 1',
      'message_consume_total{queue="billing",status="dead"} 1',
      'processing_duration_seconds_count{queue="billing",message_type="order.placed"} 1',
      "dead_letters 2",
    ]),
  );
});

test("lanes owned go up when gained, down when released or lost", () => {
  const observer = prometheus();
  observer.tell("lanes.gained", { scope: "relay", lanes: 256 });
  observer.tell("lanes.released", { scope: "relay", lanes: 100 });
  observer.tell("lanes.lost", { scope: "relay", lanes: 6 });
  expect(observer.text()).toContain('lanes_owned{scope="relay"} 150\n');
});

test("A17: a destination shows whether it is open, half-open or closed, and how many are not closed", () => {
  const observer = prometheus();
  const failure = { failures: 3, delayMs: 1_000, reason: "unreachable", error: "no" } as const;
  const shown = (topic: string): string | undefined =>
    new RegExp(`^transport_breaker_state\\{topic="${topic}"\\} (.*)$`, "m").exec(observer.text())?.[1];
  observer.tell("breaker.opened", { topic: "a", ...failure, open: 1 });
  observer.tell("breaker.opened", { topic: "b", ...failure, open: 2 });
  observer.tell("breaker.probing", { topic: "b", open: 2 });
  expect([shown("a"), shown("b"), shown("c")]).toEqual(["2", "1", undefined]);
  expect(observer.text()).toContain("transport_breakers_open 2\n");
  observer.tell("breaker.closed", { topic: "b", durationMs: 5, open: 1 });
  expect(shown("b")).toBe("0");
  expect(observer.text()).toContain('transport_breaker_changes_total{state="open"} 2\n');
});

test("histogram buckets add up and end with +Inf", () => {
  const observer = prometheus();
  observer.tell("relay.batch", { count: 1, durationMs: 5 });
  observer.tell("relay.batch", { count: 1, durationMs: 6 });
  observer.tell("relay.batch", { count: 1, durationMs: 90_000 });
  const lines = observer.text().split("\n");
  expect(lines).toEqual(
    expect.arrayContaining([
      'outbox_batch_duration_seconds_bucket{le="0.0025"} 0',
      'outbox_batch_duration_seconds_bucket{le="0.005"} 1',
      'outbox_batch_duration_seconds_bucket{le="0.01"} 2',
      'outbox_batch_duration_seconds_bucket{le="60"} 2',
      'outbox_batch_duration_seconds_bucket{le="+Inf"} 3',
      "outbox_batch_duration_seconds_sum 90.011",
      "outbox_batch_duration_seconds_count 3",
    ]),
  );
});

test("quotes, backslashes and line breaks in labels cannot break out of their line", () => {
  const observer = prometheus();
  observer.tell("consumer.suspect", { consumer: 'a"b\\c\nd', id: "1", crashes: 1 });
  expect(observer.text()).toContain('consumer_inbox_suspects_total{consumer_name="a\\"b\\\\c\\nd"} 1\n');
});

test("a hundred thousand label values stay within the cap, and none is lost", () => {
  const observer = prometheus({ seriesPerMetric: 50 });
  for (let i = 0; i < 100_000; i++)
    observer.tell("consumer.suspect", { consumer: `c${i}`, id: "1", crashes: 1 });
  const series = observer.text().match(/^consumer_inbox_suspects_total\{.*$/gm) ?? [];
  expect(series).toHaveLength(50);
  expect(series).toContain('consumer_inbox_suspects_total{consumer_name="other"} 99951');
});

test("label values that look alike once written share one line", () => {
  const observer = prometheus();
  for (const end of ["a", "b"]) {
    observer.tell("consumer.suspect", { consumer: "x".repeat(200) + end, id: "1", crashes: 1 });
  }
  observer.tell("consumer.suspect", { consumer: "\ud800", id: "1", crashes: 1 });
  observer.tell("consumer.suspect", { consumer: "\ud801", id: "1", crashes: 1 });
  const series = observer.text().match(/^consumer_inbox_suspects_total\{.*$/gm) ?? [];
  expect(series).toEqual([expect.stringMatching(/ 2$/), expect.stringMatching(/ 2$/)]);
});

test("every line of the page is one the text format allows", () => {
  const observer = prometheus();
  observer.tell("consumer.processed", processed);
  const allowed =
    /^(# HELP [a-z_]+ .+|# TYPE [a-z_]+ (counter|gauge|histogram)|[a-z_]+(\{([a-z_]+="([^"\\]|\\.)*",?)+\})? \S+)$/;
  const page = observer.text();
  expect(page.endsWith("\n")).toBe(true);
  for (const line of page.trimEnd().split("\n")) expect(line).toMatch(allowed);
  expect(observer.contentType).toBe("text/plain; version=0.0.4; charset=utf-8");
});

test("every metric has a help text, and every metric without labels is there from the start", () => {
  const page = prometheus().text();
  for (const [name, { labels, help }] of Object.entries(metricCatalogue)) {
    expect(help.length).toBeGreaterThan(10);
    expect(page).toContain(`# HELP ${name} `);
    if (labels.length === 0) expect(page).toMatch(new RegExp(`^${name}(_count)? 0$`, "m"));
  }
});
