import { expect, test } from "vitest";
import { metricCatalogue } from "./metric-catalogue.ts";
import { prometheus } from "./prometheus.ts";

const processed = { consumer: "billing", type: "order.placed", topic: "orders", id: "1", durationMs: 12 };
const buried = { id: "1", type: "order.placed", topic: "orders", reason: "permanent", error: "no" };

test("events are counted under the documented names", () => {
  const observer = prometheus();
  observer.emit("backlog.measured", {
    pending: 7,
    claimed: 3,
    oldestAgeMs: 1500,
    deadLetters: 2,
    unownedLanes: 4,
  });
  observer.emit("relay.fetched", { count: 5, durationMs: 1 });
  observer.emit("relay.published", { type: "order.placed", topic: "orders", count: 4, durationMs: 20 });
  observer.emit("relay.failed", { ...buried, attempt: 1, delayMs: 1, reason: "rejected" });
  observer.emit("optimistic.attempted", { count: 2 });
  observer.emit("optimistic.succeeded", { count: 1, durationMs: 3 });
  observer.emit("optimistic.failed", { count: 1, reason: "timeout", error: "late" });
  observer.emit("consumer.processed", processed);
  observer.emit("consumer.duplicate", processed);
  observer.emit("dead_letter.buried", { ...buried, origin: "outbox", consumer: null });
  observer.emit("dead_letter.buried", { ...buried, origin: "consumer", consumer: "billing" });
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
      'lanes_unowned{scope="outbox"} 4',
    ]),
  );
});

test("lanes owned go up when gained, down when released or lost", () => {
  const observer = prometheus();
  observer.emit("lanes.gained", { scope: "relay", lanes: 256 });
  observer.emit("lanes.released", { scope: "relay", lanes: 100 });
  observer.emit("lanes.lost", { scope: "relay", lanes: 6 });
  expect(observer.text()).toContain('lanes_owned{scope="relay"} 150\n');
});

test("A17: a destination shows whether it is open, half-open or closed, and how many are not closed", () => {
  const observer = prometheus();
  const failure = { failures: 3, delayMs: 1_000, reason: "unreachable", error: "no" } as const;
  const shown = (topic: string): string | undefined =>
    new RegExp(`^transport_breaker_state\\{topic="${topic}"\\} (.*)$`, "m").exec(observer.text())?.[1];
  observer.emit("breaker.opened", { topic: "a", ...failure, open: 1 });
  observer.emit("breaker.opened", { topic: "b", ...failure, open: 2 });
  observer.emit("breaker.probing", { topic: "b", open: 2 });
  expect([shown("a"), shown("b"), shown("c")]).toEqual(["2", "1", undefined]);
  expect(observer.text()).toContain("transport_breakers_open 2\n");
  observer.emit("breaker.closed", { topic: "b", durationMs: 5, open: 1 });
  expect(shown("b")).toBe("0");
  observer.emit("breaker.forgotten", { topic: "a", durationMs: 5, open: 0 });
  expect([shown("a"), observer.text().includes("transport_breakers_open 0\n")]).toEqual(["0", true]);
  expect(observer.text()).toContain('transport_breaker_changes_total{state="open"} 2\n');
});

test("a forgotten depth is not shown, and its topic can be measured again", () => {
  const observer = prometheus();
  observer.emit("depth.measured", { topic: "a", depth: 12_000 });
  observer.emit("depth.measured", { topic: "b", depth: 1 });
  observer.emit("depth.forgotten", { topic: "a" });
  observer.emit("depth.forgotten", { topic: "never measured" });
  const shown = (): string[] => observer.text().match(/^transport_depth\{.*$/gm) ?? [];
  expect(shown()).toEqual(['transport_depth{topic="b"} 1']);
  observer.emit("depth.measured", { topic: "a", depth: 2 });
  expect(shown()).toEqual(['transport_depth{topic="b"} 1', 'transport_depth{topic="a"} 2']);
});

test("histogram buckets add up and end with +Inf", () => {
  const observer = prometheus();
  observer.emit("relay.batch", { count: 1, durationMs: 5 });
  observer.emit("relay.batch", { count: 1, durationMs: 6 });
  observer.emit("relay.batch", { count: 1, durationMs: 90_000 });
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
  observer.emit("consumer.suspect", { consumer: 'a"b\\c\nd', id: "1", crashes: 1 });
  expect(observer.text()).toContain('consumer_inbox_suspects_total{consumer_name="a\\"b\\\\c\\nd"} 1\n');
});

test("a hundred thousand label values stay within the cap, and all are counted", () => {
  const observer = prometheus({ seriesPerMetric: 50 });
  for (let i = 0; i < 100_000; i++)
    observer.emit("consumer.suspect", { consumer: `c${i}`, id: "1", crashes: 1 });
  const series = observer.text().match(/^consumer_inbox_suspects_total\{.*$/gm) ?? [];
  expect(series).toHaveLength(50);
  expect(series).toContain('consumer_inbox_suspects_total{consumer_name="other"} 99951');
});

test("label values that are equal after truncation share one line", () => {
  const observer = prometheus();
  for (const end of ["a", "b"]) {
    observer.emit("consumer.suspect", { consumer: "x".repeat(200) + end, id: "1", crashes: 1 });
  }
  observer.emit("consumer.suspect", { consumer: "\ud800", id: "1", crashes: 1 });
  observer.emit("consumer.suspect", { consumer: "\ud801", id: "1", crashes: 1 });
  const series = observer.text().match(/^consumer_inbox_suspects_total\{.*$/gm) ?? [];
  expect(series).toEqual([expect.stringMatching(/ 2$/), expect.stringMatching(/ 2$/)]);
});

test("every line of the page is one the text format allows", () => {
  const observer = prometheus();
  observer.emit("consumer.processed", processed);
  const allowed =
    /^(# HELP \w+ .+|# TYPE \w+ (counter|gauge|histogram)|[a-z]\w+(\{([a-z_]+="([^"\\]|\\.)*",?)+\})? \S+)$/;
  const page = observer.text();
  expect(page.endsWith("\n")).toBe(true);
  for (const line of page.trimEnd().split("\n")) expect(line).toMatch(allowed);
  expect(observer.contentType).toBe("text/plain; version=0.0.4; charset=utf-8");
});

test("every metric has a help text, and every metric without labels is exposed from the start", () => {
  const page = prometheus().text();
  for (const [name, { labels, help }] of Object.entries(metricCatalogue)) {
    expect(help.length).toBeGreaterThan(10);
    expect(page).toContain(`# HELP ${name} `);
    if (labels.length === 0) expect(page).toMatch(new RegExp(`^${name}(_count)? 0$`, "m"));
  }
});

test("help texts do not claim that values of one process hold for all", () => {
  const ofOneProcess = [
    "outbox_claimed_events",
    "lanes_owned",
    "transport_breakers_open",
    "database_pool_waiting",
  ] as const;
  for (const name of ofOneProcess) expect(metricCatalogue[name].help).not.toMatch(/use max/i);
  for (const name of ofOneProcess) expect(metricCatalogue[name].help).toMatch(/this process/i);
  expect(metricCatalogue.outbox_claimed_events.help).toContain("use sum");
});

test("G2: every metric the documents name exists under that name, with those labels", () => {
  const named = {
    outbox_pending_events_total: ["gauge"],
    outbox_claimed_events_total: ["counter"],
    outbox_published_events_total: ["counter", "event_type"],
    outbox_failed_events_total: ["counter", "event_type", "reason"],
    outbox_dead_letter_events_total: ["counter", "event_type"],
    outbox_publish_duration_seconds: ["histogram", "event_type"],
    outbox_batch_duration_seconds: ["histogram"],
    outbox_optimistic_send_attempts_total: ["counter"],
    outbox_optimistic_send_success_total: ["counter"],
    outbox_optimistic_send_failures_total: ["counter", "reason"],
    outbox_optimistic_send_latency_seconds: ["histogram"],
    consumer_inbox_processed_total: ["counter", "consumer_name", "event_type"],
    consumer_inbox_duplicates_total: ["counter", "consumer_name", "event_type"],
    consumer_inbox_processing_duration_seconds: ["histogram", "consumer_name", "event_type"],
    message_publish_total: ["counter", "exchange", "routing_key"],
    publish_latency_seconds: ["histogram", "exchange"],
    message_consume_total: ["counter", "queue", "status"],
    processing_duration_seconds: ["histogram", "queue", "message_type"],
  };
  for (const [name, shape] of Object.entries(named)) {
    const { kind, labels } = metricCatalogue[name as keyof typeof named];
    expect([name, kind, ...labels]).toEqual([name, ...shape]);
  }
});

test("pool, process, sagas and dead letters are gauges of what was measured last", () => {
  const observer = prometheus();
  observer.emit("pool.measured", { max: 30, total: 12, idle: 5, waiting: 2 });
  observer.emit("sagas.measured", { status: "running", count: 3 });
  observer.emit("sagas.measured", { status: "stuck", count: 1 });
  observer.emit("dead_letters.measured", { consumer: "billing", type: "order.placed", count: 4 });
  observer.emit("dead_letters.measured", { consumer: "billing", type: "order.placed", count: 0 });
  const figures = { startedMs: 1_000, cpuMs: 500, residentBytes: 9, heapBytes: 8 };
  observer.emit("process.measured", { ...figures, lagMaxMs: 20, lagP99Ms: 10 });
  expect(observer.text().split("\n")).toEqual(
    expect.arrayContaining([
      "database_pool_connections_max 30",
      'database_pool_connections{state="busy"} 7',
      'database_pool_connections{state="idle"} 5',
      "database_pool_waiting 2",
      'sagas_open{status="running"} 3',
      "sagas_stuck 1",
      'dead_letters_open{consumer_name="billing",event_type="order.placed"} 0',
      "process_start_time_seconds 1",
      "process_cpu_seconds_total 0.5",
      "process_resident_memory_bytes 9",
      "nodejs_eventloop_lag_max_seconds 0.02",
    ]),
  );
});
